"""Opening a checkpoint without knowing its class, and without running anything stored in it."""

import re
from pathlib import Path
from typing import Any

import torch
from jsonargparse import ArgumentParser

from fna_lightning.allowed_classes import model_classes
from fna_lightning.errors import UsageError, one_sentence
from fna_lightning.plugins import load_plugins
from fna_lightning.task import Task
from fna_lightning.trust import FileCheck

# arguments of every task that only training uses
TRAINING = ("optimizer", "lr_scheduler")
WAY_OUT = (
    "if you know who wrote the file, load it in Python by fna_lightning.checkpoint.load_task(path, trust=True) or "
    "install the package of the class as a plug-in"
)


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
    recipe = checkpoint.get("recipe")
    if not isinstance(recipe, dict):
        raise UsageError(
            f"{path} carries no recipe (it was not trained by `fna-lightning fit`); load it with its own class"
        )
    task = build_task(recipe, trust=trust, source=str(path))
    try:
        task.load_state_dict(checkpoint["state_dict"])
    except (RuntimeError, TypeError, AttributeError) as error:
        raise UsageError(f"the weights in {path} do not fit its recipe: {_first_line(error)}") from error
    task.recipe = recipe
    return task.eval()


def build_task(
    recipe: dict[str, Any], *, trust: bool = False, source: str = "the recipe", way_out: str = WAY_OUT
) -> Task:
    """Return a new task made from plain values, with the default optimiser and schedule of its class.

    Args:
        recipe: names a Task and its arguments, and so on for every part of it. Only listed classes are accepted, and
            nothing it names is imported.
        trust: accept any function or class.
        source: what messages call the file the recipe comes from.
        way_out: what they advise.
    """
    load_plugins()
    if not trust:
        recipe = FileCheck(source, model_classes(), way_out).check(recipe, Task, "recipe")
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(Task, "task")
    try:
        described = parser.parse_object({"task": _untrained(recipe)})
        task = parser.instantiate_classes(described).task
    except Exception as error:
        raise UsageError(f"{source}: the recipe cannot be built: {one_sentence(str(error))}") from error
    assert isinstance(task, Task)
    return task


def _untrained(recipe: dict[str, Any]) -> dict[str, Any]:
    """Return a recipe without optimiser and schedule: where nothing is trained, they are not built."""
    arguments = recipe.get("init_args")
    if not isinstance(arguments, dict):
        return recipe
    return {**recipe, "init_args": {name: value for name, value in arguments.items() if name not in TRAINING}}


def _reason(error: BaseException) -> str:
    """Return why PyTorch did not load a file, without its advice to load it by running what is in it."""
    text = " ".join(str(error).split())
    if found := re.search(r"WeightsUnpickler error: (.*?)(?:\. Please|Check the documentation|$)", text):
        return f"it is damaged or holds more than tensors and plain values ({found[1].strip()})"
    return _first_line(error)


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
