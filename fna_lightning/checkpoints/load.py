"""Opening a checkpoint without knowing its class, and without running anything stored in it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from jsonargparse import ArgumentParser

from fna_lightning.checkpoints.archive import check_archive
from fna_lightning.checkpoints.load_failure import load_failure
from fna_lightning.config.allowed_classes import model_classes
from fna_lightning.config.messages import parser_message
from fna_lightning.config.plugins import load_plugins
from fna_lightning.config.trust import FileCheck
from fna_lightning.errors import UsageError, first_line
from fna_lightning.task import Task
from fna_lightning.utils.limits import check_tree, limit_jsonargparse

# arguments of every task that only training uses
TRAINING = ("optimizer", "lr_scheduler")
WAY_OUT = (
    "if you know who wrote the file, load it in Python with "
    "fna_lightning.checkpoints.load.load_task(path, trust=True), "
    "or install the package of the class as a plug-in"
)

# weights that are tied are stored once, and counted as often as they are named
MAX_TENSOR_GROWTH = 16


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return what a checkpoint file holds; only tensors and plain values are accepted."""
    if "://" in str(path):
        raise UsageError(f"a checkpoint must be a file, got the address {path}; download it first")
    if not Path(path).is_file():
        raise UsageError(
            f"no checkpoint {str(path)!r}; give the path of a .ckpt file, e.g. runs/.../checkpoints/best.ckpt"
        )
    try:
        # what is checked is what is read, even if another file takes the name meanwhile
        with open(path, "rb") as file:
            check_archive(file, str(path))
            checkpoint = _load(file, path)
            size = file.seek(0, 2)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check its permissions and the disk") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise UsageError(f"{path} is not a Lightning checkpoint: it has no state_dict")
    check_tree(checkpoint, str(path))
    _check_tensors(checkpoint, size, str(path))
    return checkpoint


def _load(file: BinaryIO, path: str | Path) -> Any:
    failure = None
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # a damaged file fails in as many ways as there are bytes in it
        failure = load_failure(error)
    # not "from error", whose text advises to switch the protection off
    raise UsageError(f"{path} is not a checkpoint this program can trust or read: {failure}")


def _check_tensors(tree: Any, size: int, name: str) -> None:
    """Refuse tensors that, copied, would take many times the bytes of their file: expanded ones, views, no storage.

    Args:
        tree: mappings, lists and tuples that keep the limits of ``check_tree``.
        size: bytes of the file.
        name: of the file.
    """
    total = 0
    level = [tree]
    while level:
        inner: list[Any] = []
        for value in level:
            if isinstance(value, torch.Tensor):
                total += value.numel() * value.element_size()
            elif isinstance(value, Mapping):
                inner.extend(value.values())
            elif isinstance(value, list | tuple | set | frozenset):
                inner.extend(value)
        level = inner
    if total > MAX_TENSOR_GROWTH * size:
        raise UsageError(
            f"{name} is not a checkpoint this program can trust or read: its tensors would take {total:,} bytes, more "
            f"than {MAX_TENSOR_GROWTH} times the {size:,} of the file"
        )


def load_task(path: str | Path, *, trust: bool = False) -> Task:
    """Return the trained task of a checkpoint, in evaluation mode, on the CPU.

    It is made for inference: its optimiser and schedule are the defaults of its class, not those it was trained with.

    Args:
        path: of the checkpoint.
        trust: build whatever functions and classes the checkpoint names; only for one whose author you know.
    """
    return task_of(read_checkpoint(path), path, trust=trust)


def task_of(checkpoint: dict[str, Any], path: str | Path, *, trust: bool = False) -> Task:
    """Return the trained task of what ``read_checkpoint`` found at ``path``; see ``load_task``."""
    model_config = checkpoint.get("model_config")
    if not isinstance(model_config, dict):
        raise UsageError(
            f"{path} carries no model_config (it was not trained by `fna-lightning fit`); load it with its own class"
        )
    task = build_task(model_config, trust=trust, source=str(path))
    try:
        task.load_state_dict(checkpoint["state_dict"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UsageError(f"the weights in {path} do not fit its model_config: {first_line(error)}") from error
    task.model_config = model_config
    return task.eval()


def build_task(
    model_config: dict[str, Any], *, trust: bool = False, source: str = "the checkpoint", way_out: str = WAY_OUT
) -> Task:
    """Return a new task made from plain values, with the default optimiser and schedule of its class.

    Args:
        model_config: ``class_path`` and ``init_args`` of a Task, and the same for each of its parts. Only listed
            classes are accepted, and nothing is imported.
        trust: accept any function or class.
        source: what messages call the file the model_config comes from.
        way_out: what they advise.
    """
    load_plugins()
    if not trust:
        model_config = FileCheck(source, model_classes(), way_out).check(model_config, Task, "model_config")
    limit_jsonargparse()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Task, "task")
    try:
        described = parser.parse_object({"task": _untrained(model_config)})
        task = parser.instantiate_classes(described).task
    except Exception as error:
        raise UsageError(f"{source}: the model_config cannot be built: {parser_message(str(error))}") from error
    assert isinstance(task, Task)
    return task


def _untrained(model_config: dict[str, Any]) -> dict[str, Any]:
    """Return a model_config without optimiser and schedule: where nothing is trained, they are not built."""
    arguments = model_config.get("init_args")
    if not isinstance(arguments, dict):
        return model_config
    return {**model_config, "init_args": {name: value for name, value in arguments.items() if name not in TRAINING}}
