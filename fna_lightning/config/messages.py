"""Turns errors of jsonargparse, Lightning and PyTorch into one-line messages with a suggested fix."""

import difflib
import inspect
import re
import sys
import traceback
from pathlib import Path
from typing import get_type_hints

from fna_lightning.config.registry import builtin_names
from fna_lightning.errors import one_line

# lines of a jsonargparse report that do not name the error itself
_NOISE = (
    "Does not validate against any of the Union subtypes",
    "Subtypes:",
    "Errors:",
    "Given value",
    "Expected a <class 'NoneType'>",
    "Expected <class 'NoneType'>",
)

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
        "there is not enough memory; try a smaller --data.batch_size with a larger --trainer.accumulate_grad_batches",
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


# the three ways in which jsonargparse reports an option that does not exist
REJECTED_OPTION = (
    r"[Oo]ption '(?P<path>[\w.]+)' is not accepted"
    r"|(?:Group '(?P<group>[\w.]+)' )?does not accept option '(?P<key>[\w.]+)'"
)


def parser_message(report: str) -> str:
    """Return the innermost error of a jsonargparse report on one line: where it is, and what is accepted instead."""
    if report.startswith("Problems parsing config"):
        return " ".join(report.split())
    keys: list[str] = []
    class_path, problem = None, None
    for line in report.splitlines():
        text = line.strip().removeprefix("- ")
        if match := re.match(r'Parser key "(.+?)":\s*(.*)', text):
            keys.append(match[1])
            text = match[2]
        elif match := re.match(r"Problem with given class_path '(.+?)':?\s*(.*)", text):
            class_path, text = match[1], match[2]
        if text and not text.startswith(_NOISE):
            # an option of a nested dataclass is reported without its group
            problem = re.sub(r"^unrecognized arguments: --([\w.]+)(=.*)?$", r"Option '\1' is not accepted", text)
            break
    if problem is None:
        return " ".join(report.split())
    key = ".".join(keys)
    message = f"{key}: {problem}" if key else problem
    return re.sub(r"<class '([\w.]+)'>", r"\1", message) + _suggestion(problem, class_path)


def _suggestion(problem: str, class_path: str | None) -> str:
    """Return what is accepted instead, to be appended to the message; empty if that is not known."""
    if match := re.search(REJECTED_OPTION, problem):
        path = ".".join(filter(None, [match["group"], match["path"] or match["key"]]))
        group, _, key = path.rpartition(".")
        if class_path is None and group == "trainer":
            class_path, group = "lightning.pytorch.Trainer", ""
        accepted = (
            _parameters(class_path, group)
            if class_path
            else ["seed_everything", "trainer", "model", "data", "ckpt_path"]
        )
        if not accepted:
            return ""
        similar = difflib.get_close_matches(key, accepted, n=1)
        hint = f"; did you mean {similar[0]!r}?" if similar else ""
        if len(accepted) > 12:
            return hint
        return f"{hint} It takes {', '.join(accepted)}" if hint else f"; it takes {', '.join(accepted)}"
    if match := re.search(r"Expected a dot import path string: (\S+)|Expected a path but (\S+) either", problem):
        similar = difflib.get_close_matches(match[1] or match[2], builtin_names(), n=1)
        hint = f"did you mean {similar[0]!r}? " if similar else ""
        return f"; {hint}`fna-lightning list` names the classes; write other classes as package.module.Class"
    return ""


def _parameters(class_path: str, group: str) -> list[str]:
    """Return the parameters of an imported class, or of the dataclass that is its parameter ``group``.

    Nothing is imported, because a report may quote any name.

    Args:
        class_path: dotted path of the class.
        group: dotted path of parameters whose types are dataclasses, e.g. "vit.encoder"; empty for the class itself.
    """
    module, _, name = class_path.rpartition(".")
    cls = getattr(sys.modules.get(module), name, None)
    for part in filter(None, group.split(".")):
        cls = get_type_hints(cls.__init__).get(part) if inspect.isclass(cls) else None
    if not inspect.isclass(cls):
        return []
    return [parameter for parameter in inspect.signature(cls).parameters if parameter not in ("args", "kwargs")]
