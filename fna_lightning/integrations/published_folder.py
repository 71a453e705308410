"""The folder of a published model, read with care: it may come from strangers, and may have been damaged on its way."""

import json
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from torch import nn

from fna_lightning.errors import UsageError

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PARTS = ("recipe", "codec", "about")


def find_folder(name: str | Path, **options: Any) -> Path:
    """Return a local folder, or what the hub has under this name; ``options`` are those of ``snapshot_download``."""
    if "://" in str(name):
        raise UsageError(
            f"a published model is a folder or a name on the hub, got the address {name}; download it first"
        )
    if Path(name).is_dir():
        return Path(name)
    try:
        return Path(snapshot_download(str(name), allow_patterns=[CONFIG, WEIGHTS], **options))
    except (OSError, ValueError) as error:
        raise UsageError(
            f"no folder {str(name)!r}, and the hub gives no model of this name ({_first_line(error)}); give a folder "
            "that `fna-lightning export` wrote, or a name on the hub such as someone/model"
        ) from error


def read_config(folder: Path) -> dict[str, Any]:
    """Return the arguments of ``PublishedModel`` that the folder keeps."""
    path = folder / CONFIG
    if not path.is_file():
        raise UsageError(f"{folder} has no {CONFIG}; give a folder that `fna-lightning export` wrote")
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as JSON: {_first_line(error)}; export the model again") from error
    if not isinstance(found, dict) or not isinstance(found.get("recipe"), dict):
        raise UsageError(
            f"{path} carries no recipe: it was not written by `fna-lightning export`; load the model with its own class"
        )
    return {part: found[part] for part in PARTS if part in found}


def load_weights(model: nn.Module, folder: Path) -> None:
    """Give the model the weights of the folder: all of them, and no others."""
    import safetensors.torch

    path = folder / WEIGHTS
    if not path.is_file():
        raise UsageError(f"{folder} has no {WEIGHTS}; give a folder that `fna-lightning export` wrote")
    try:
        safetensors.torch.load_file(path)
    except Exception as error:
        # a damaged file fails in as many ways as there are bytes in it
        raise UsageError(
            f"{path} is no safetensors file that can be read: {_first_line(error)}; export the model again"
        ) from error
    try:
        safetensors.torch.load_model(model, path)
    except (RuntimeError, ValueError, TypeError) as error:
        raise UsageError(
            f"the weights in {path} do not fit the recipe in {CONFIG}: {' '.join(str(error).split())}; both must come "
            "from one export"
        ) from error


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0]
