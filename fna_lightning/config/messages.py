"""Turns errors of Lightning and PyTorch into one-line messages with a suggested fix."""

import re
import traceback
from pathlib import Path

from fna_lightning.errors import one_line

DEAD_LOADER = (
    "a process that loads data has died ({0}); often memory or /dev/shm is full: try --data.num_workers=0, then "
    "continue from the last checkpoint with `fna-lightning resume RUN_DIR`"
)
# (pattern in the message of a library, explanation); {0} is the first group of the pattern
EXPLANATIONS = (
    (
        r"Connection (?:reset|closed|refused)|Read error \[|Broken pipe|remote process exited|NCCL|ProcessGroup",
        (
            "another process of this run has ended or cannot be reached, so this one ends too; the message of the "
            "other process has the reason, and `fna-lightning resume RUN_DIR` continues from the last checkpoint"
        ),
    ),
    (r"DataLoader worker .*?(is killed by signal: \w+|exited unexpectedly)", DEAD_LOADER),
    (
        r"(No supported gpu backend found|`?(?:CUDA|MPS|TPU)Accelerator`? can not run)",
        "there is no GPU that PyTorch can use here; leave --trainer.accelerator out, or set it to cpu",
    ),
    (
        r"strategy `fsdp` requires a GPU accelerator|FSDP needs a non-CPU accelerator",
        "--trainer.strategy fsdp is Lightning's and needs a GPU; fsdp2 shards parameters with GPUs and without",
    ),
    (
        r"(You requested gpu: \[.*?\]\s*But your machine only has: \[.*?\])",
        "there are fewer GPUs than requested ({0}); set --trainer.devices to the number of GPUs here",
    ),
    (
        r"(?:CUDA )?out of memory|(?:can't|not enough|cannot) allocate (?:memory)?",
        "there is not enough memory; try a smaller --batch-size with a larger --trainer.accumulate_grad_batches",
    ),
    (
        r"No space left on device",
        "the disk is full; free some space, then continue with `fna-lightning resume RUN_DIR`",
    ),
    (
        r"Error\(s\) in loading state_dict for \w+:\s*(.*)",
        (
            "the weights of this checkpoint belong to another model ({0}); use the configuration it was trained with, "
            "config.yaml in its run folder"
        ),
    ),
)


def explain(error: BaseException) -> str:
    """Return a one-line explanation of an error of a library; the message itself if there is no explanation."""
    text = one_line(error)
    if isinstance(error, ConnectionError | EOFError) and _raised_by_data_loader(error):
        return DEAD_LOADER.format(text[:200])
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object[max(0, error.start - 60) : error.start + 60]!r} holds bytes that are not UTF-8, most often "
            "a file name in another encoding; rename the file or folder"
        )
    for pattern, explanation in EXPLANATIONS:
        if match := re.search(pattern, text):
            return explanation.format(*(group[:200] for group in match.groups()))
    return text


def _raised_by_data_loader(error: BaseException) -> bool:
    """Whether PyTorch's data loader raised the error; its workers, too, use connections."""
    frames = traceback.walk_tb(error.__traceback__)
    return any("torch/utils/data" in Path(frame.f_code.co_filename).as_posix() for frame, _ in frames)
