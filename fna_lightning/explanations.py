"""What the errors of the libraries below mean for the person who runs a command."""

import re
import traceback
from pathlib import Path

DEAD_LOADER = (
    "a process that loads data has died ({0}); often memory or /dev/shm is full: try --data.num_workers=0, and "
    "`fna-lightning resume RUN_DIR` goes on from the last checkpoint"
)
# what the message looks like: what it means and what to do; {0} is its interesting part
MEANINGS = (
    (
        r"Connection (?:reset|closed|refused)|Read error \[|Broken pipe|remote process exited|NCCL|ProcessGroup",
        (
            "another process of this run has ended or cannot be reached, so this one ends too; its own message says "
            "why, and `fna-lightning resume RUN_DIR` goes on from the last checkpoint"
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
        "there are fewer GPUs than asked for ({0}); set --trainer.devices to what is there",
    ),
    (
        r"(?:CUDA )?out of memory|(?:can't|not enough|cannot) allocate (?:memory)?",
        "there is not enough memory; try a smaller --data.batch_size with a larger --trainer.accumulate_grad_batches",
    ),
    (r"No space left on device", "the disk is full; free some space, and `fna-lightning resume RUN_DIR` goes on"),
    (
        r"Error\(s\) in loading state_dict for \w+:\s*(.*)",
        (
            "the weights of this checkpoint are for another model ({0}); use the configuration it was trained with, "
            "config.yaml in its run folder"
        ),
    ),
)


def explain(error: BaseException) -> str:
    """Return one sentence for an error that was not meant for a user; its own words if nothing better is known."""
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, ConnectionError | EOFError) and _while_loading(error):
        return DEAD_LOADER.format(text[:200])
    if isinstance(error, UnicodeEncodeError):
        return (
            f"{error.object[max(0, error.start - 60) : error.start + 60]!r} holds bytes that are not UTF-8, most often "
            "a file name in another encoding; rename the file or folder"
        )
    for pattern, meaning in MEANINGS:
        if found := re.search(pattern, text):
            return meaning.format(*(part[:200] for part in found.groups()))
    return text


def _while_loading(error: BaseException) -> bool:
    """Whether it was raised in PyTorch's data loader: its workers, too, are reached by connections."""
    frames = traceback.walk_tb(error.__traceback__)
    return any("torch/utils/data" in Path(frame.f_code.co_filename).as_posix() for frame, _ in frames)
