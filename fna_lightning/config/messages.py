"""Turns errors of jsonargparse, Lightning and PyTorch into one-line messages with a suggested fix."""

import difflib
import inspect
import re
import sys
import traceback
from pathlib import Path

from fna_lightning.config.registry import builtin_names

# lines of jsonargparse's reports that say nothing about the mistake itself
_NOISE = (
    "Does not validate against any of the Union subtypes",
    "Subtypes:",
    "Errors:",
    "Given value",
    "Expected a <class 'NoneType'>",
    "Expected a dict with a class_path",
)

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


def one_line(report: str) -> str:
    """Return the innermost complaint of a jsonargparse report, with where it is and what is accepted instead."""
    if report.startswith("Problems parsing config"):
        return " ".join(report.split())
    keys: list[str] = []
    class_path, complaint = None, None
    for line in report.splitlines():
        text = line.strip().removeprefix("- ")
        if found := re.match(r'Parser key "(.+?)":\s*(.*)', text):
            keys.append(found[1])
            text = found[2]
        elif found := re.match(r"Problem with given class_path '(.+?)':?\s*(.*)", text):
            class_path, text = found[1], found[2]
        if text and not text.startswith(_NOISE):
            complaint = text
            break
    if complaint is None:
        return " ".join(report.split())
    where = ".".join(keys)
    sentence = f"{where}: {complaint}" if where else complaint
    return re.sub(r"<class '([\w.]+)'>", r"\1", sentence) + _way_out(complaint, class_path)


def _way_out(complaint: str, class_path: str | None) -> str:
    if found := re.search(r"[Oo]ption '([\w.]+)' is not accepted|does not accept option '([\w.]+)'", complaint):
        key = found[1] or found[2]
        if class_path is None and key.startswith("trainer."):
            class_path, key = "lightning.pytorch.Trainer", key.removeprefix("trainer.")
        accepted = (
            _parameters(class_path) if class_path else ["seed_everything", "trainer", "model", "data", "ckpt_path"]
        )
        if not accepted:
            return ""
        near = difflib.get_close_matches(key, accepted, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"{meant or ';'} It takes {', '.join(accepted)}" if len(accepted) <= 12 else meant
    if found := re.search(r"Expected a dot import path string: (\S+)|Expected a path but (\S+) either", complaint):
        near = difflib.get_close_matches(found[1] or found[2], builtin_names(), n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        return f"; {meant}`fna-lightning list` names the classes, others are written as package.module.Class"
    return ""


def _parameters(class_path: str) -> list[str]:
    """Return the parameters of a class that has been imported; a report may quote any name, so none is imported."""
    module, _, name = class_path.rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    if not inspect.isclass(kind):
        return []
    return [parameter for parameter in inspect.signature(kind).parameters if parameter not in ("args", "kwargs")]
