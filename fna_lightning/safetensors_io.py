"""Weights as a safetensors file: nothing but tensors and words, so anyone can open it without trust.

The words hold the recipe of the task, and so the file alone is enough to build it again.
"""

import json
from pathlib import Path
from typing import Any

from fna_lightning.atomic_file import write_whole
from fna_lightning.checkpoint import build_task, read_checkpoint
from fna_lightning.errors import UsageError
from fna_lightning.task import Task

RECIPE = "fna_lightning.recipe"


def export_weights(checkpoint: str | Path, path: str | Path) -> Path:
    """Write the weights and the recipe of a checkpoint to ``path`` and return it."""
    from safetensors.torch import save

    found = read_checkpoint(checkpoint)
    if found.get("recipe") is None:
        raise UsageError(f"{checkpoint} carries no recipe (it was not trained by `fna-lightning fit`)")
    # a file of its own for each tensor: shared or strided memory is not kept
    weights = {name: tensor.detach().clone().contiguous() for name, tensor in found["state_dict"].items()}
    content = save(weights, {RECIPE: json.dumps(found["recipe"])})
    path = Path(path)
    write_whole(path, lambda file: _write(file, content))
    return path


def import_weights(path: str | Path) -> Task:
    """Return the task whose weights and recipe ``export_weights`` wrote, in evaluation mode."""
    from safetensors import SafetensorError, safe_open

    if "://" in str(path):
        raise UsageError(f"weights must be a file, got the address {path}; download it first")
    if not Path(path).is_file():
        raise UsageError(f"no file {str(path)!r}; give the path of a .safetensors file")
    try:
        with safe_open(str(path), framework="pt") as file:
            recipe = json.loads((file.metadata() or {}).get(RECIPE, "null"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
    except (SafetensorError, ValueError, OSError) as error:
        raise UsageError(
            f"{path} is no safetensors file that can be read: {str(error).partition(chr(10))[0]}"
        ) from error
    if not isinstance(recipe, dict):
        raise UsageError(f"{path} carries no recipe: it was not written by fna-lightning; load it with its own class")
    task = build_task(recipe)
    try:
        task.load_state_dict(weights)
    except RuntimeError as error:
        raise UsageError(f"the weights in {path} do not fit its recipe: {' '.join(str(error).split())}") from error
    task.recipe = recipe
    return task.eval()


def _write(file: Any, content: bytes) -> None:
    file.write(content)
