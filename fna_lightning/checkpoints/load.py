"""Loading a checkpoint without knowing its class. Loading never executes code stored in the file."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from fna_lightning.checkpoints.archive import check_archive
from fna_lightning.checkpoints.load_failure import load_failure
from fna_lightning.checkpoints.locate import EXAMPLE, checkpoint_file, refuse_address, refuse_other_files
from fna_lightning.config.allowed_classes import model_classes
from fna_lightning.config.instantiate import instantiate
from fna_lightning.config.plugins import load_plugins
from fna_lightning.config.trust import FileCheck
from fna_lightning.errors import UsageError, first_line
from fna_lightning.task import Task
from fna_lightning.utils.limits import check_tree

# arguments of every task that only training uses
TRAINING = ("optimizer", "lr_scheduler")
WAY_OUT = (
    "if you know who wrote the file, load it in Python with "
    "fna_lightning.checkpoints.load.load_task(path, trust=True), "
    "or install the package of the class as a plug-in"
)

# Tied weights are stored once but counted under each of their names, so tensors may exceed the size of the file.
MAX_TENSOR_GROWTH = 16


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return the content of a checkpoint file as a dictionary of tensors and plain values.

    The file is checked before it is loaded, and ``torch.load`` runs with ``weights_only=True``.

    Raises:
        UsageError: if the file is missing, damaged, too large when loaded, not a Lightning checkpoint, or holds objects
            other than tensors and plain values.
    """
    refuse_address(path)
    if not Path(path).is_file():
        raise UsageError(f"there is no checkpoint {str(path)!r}; give a run folder, or a file such as {EXAMPLE}")
    try:
        # One open file for the check and for loading: the path could be replaced by another file in between.
        with open(path, "rb") as file:
            refuse_other_files(file, path)
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


def load_task(path: str | Path, *, trust: bool = False) -> Task:
    """Return the trained task of a checkpoint, in evaluation mode, on the CPU.

    The task is meant for inference: its optimizer and schedule are the defaults of its class.

    Args:
        path: path of the checkpoint, or of a run folder, whose best checkpoint is used.
        trust: whether to build any function or class that the checkpoint names. Set it only if you know who wrote the
            file.
    """
    path = checkpoint_file(path)
    return task_of(read_checkpoint(path), path, trust=trust)


def task_of(checkpoint: dict[str, Any], path: str | Path, *, trust: bool = False) -> Task:
    """Return the trained task of a checkpoint that ``read_checkpoint`` has read from ``path``; see ``load_task``."""
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
    """Return an untrained task built from plain values, with the default optimizer and schedule of its class.

    Args:
        model_config: ``class_path`` and ``init_args`` of a Task, and the same for each of its parts. Only classes of
            the allow list are accepted; no module is imported for them.
        trust: whether to accept any function or class.
        source: name of the file in error messages.
        way_out: advice in error messages.
    """
    load_plugins()
    if not trust:
        model_config = FileCheck(source, model_classes(), way_out).check(model_config, Task, "model_config")
    return instantiate(Task, _without_training(model_config), "model_config", source)  # type: ignore[type-abstract]


def _load(file: BinaryIO, path: str | Path) -> Any:
    failure = None
    try:
        return torch.load(file, map_location="cpu", weights_only=True)
    except Exception as error:
        # A damaged file can raise almost any exception.
        failure = load_failure(error)
    # Not "from error": PyTorch's message advises to switch the protection off.
    raise UsageError(f"{path} is not a checkpoint this program can trust or read: {failure}")


def _check_tensors(tree: Any, size: int, name: str) -> None:
    """Refuse tensors that would take many times the size of their file once copied: expanded, views, meta device.

    Args:
        tree: mappings, lists and tuples within the limits of ``check_tree``.
        size: size of the file in bytes.
        name: name of the file in error messages.
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


def _without_training(model_config: dict[str, Any]) -> dict[str, Any]:
    """Return a model_config without optimizer and schedule, which inference does not build."""
    arguments = model_config.get("init_args")
    if not isinstance(arguments, dict):
        return model_config
    return {**model_config, "init_args": {name: value for name, value in arguments.items() if name not in TRAINING}}
