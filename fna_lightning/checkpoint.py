"""Opening a checkpoint without knowing its class, and without running anything stored in it."""

import re
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser

from fna_lightning.errors import UsageError, one_sentence
from fna_lightning.plugins import load_plugins
from fna_lightning.task import Task


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Return what a checkpoint file holds; only tensors and plain values are accepted."""
    if "://" in str(path):
        raise UsageError(f"a checkpoint must be a file, got the address {path}; download it first")
    if not Path(path).is_file():
        raise UsageError(
            f"no checkpoint {str(path)!r}; give the path of a .ckpt file, e.g. runs/.../checkpoints/best.ckpt"
        )
    try:
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        # a damaged file fails in as many ways as there are bytes in it
        raise UsageError(f"{path} is not a checkpoint this program can trust or read: {_reason(error)}") from error
    if not isinstance(checkpoint, dict) or not isinstance(checkpoint.get("state_dict"), dict):
        raise UsageError(f"{path} is not a Lightning checkpoint: it has no state_dict")
    return checkpoint


def load_task(path: str | Path) -> Task:
    """Return the trained task of a checkpoint, in evaluation mode, on the CPU."""
    return task_of(read_checkpoint(path), path)


def task_of(checkpoint: dict[str, Any], path: str | Path) -> Task:
    """Return the trained task of what ``read_checkpoint`` found at ``path``."""
    recipe = checkpoint.get("recipe")
    if not isinstance(recipe, dict):
        raise UsageError(
            f"{path} carries no recipe (it was not trained by `fna-lightning fit`); load it with its own class"
        )
    task = build_task(recipe)
    try:
        task.load_state_dict(checkpoint["state_dict"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UsageError(f"the weights in {path} do not fit its recipe: {_first_line(error)}") from error
    task.recipe = recipe
    return task.eval()


def build_task(recipe: dict[str, Any]) -> Task:
    """Return a new task made from plain values: the class must be a Task, and so on for every part of it."""
    load_plugins()
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Task, "task")
    try:
        task = parser.instantiate_classes(parser.parse_object({"task": recipe})).task
    except Exception as error:
        raise UsageError(f"the recipe of this checkpoint cannot be built: {one_sentence(str(error))}") from error
    assert isinstance(task, Task)
    return task


def _reason(error: BaseException) -> str:
    """Return why PyTorch did not load a file, without its advice to load it by running what is in it."""
    text = " ".join(str(error).split())
    if found := re.search(r"WeightsUnpickler error: (.*?)(?:\. Please|Check the documentation|$)", text):
        return f"it is damaged or holds more than tensors and plain values ({found[1].strip()})"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
