"""Reading the folder of a published model, which is untrusted and may be damaged."""

import hashlib
import json
from pathlib import Path
from typing import Any

from huggingface_hub import snapshot_download
from torch import nn

from fna_lightning.errors import UsageError, first_line, one_line
from fna_lightning.utils.files import write_text
from fna_lightning.utils.limits import read_json

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
PARTS = ("model_config", "codec", "about")
# key of config.json with the SHA-256 of the weights
DIGEST = "weights_sha256"
# limit of the safetensors header, which takes about 100 bytes per tensor
MAX_HEADER_BYTES = 1 << 24


def find_folder(name: str | Path, **options: Any) -> Path:
    """Return a local folder, or download it from the hub; ``options`` are passed to ``snapshot_download``."""
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
            f"{str(name)!r} is not a folder, and the hub has no model of this name ({first_line(error)}); give a "
            "folder that `fna-lightning export` wrote, or a name on the hub such as someone/model"
        ) from error


def read_config(folder: Path) -> dict[str, Any]:
    """Return the arguments of ``PublishedModel`` stored in config.json."""
    path = folder / CONFIG
    if not path.is_file():
        raise UsageError(f"{folder} has no {CONFIG}; give a folder that `fna-lightning export` wrote")
    config = read_json(path, "export the model again")
    if not isinstance(config, dict) or not isinstance(config.get("model_config"), dict):
        raise UsageError(
            f"{path} carries no model_config: it was not written by `fna-lightning export`; load the model with its "
            "own class"
        )
    return {part: config[part] for part in PARTS if part in config}


def record_digest(folder: Path) -> None:
    """Write the SHA-256 of the weights into config.json, because safetensors has no checksum."""
    config = read_json(folder / CONFIG, "export the model again")
    config[DIGEST] = file_digest(folder / WEIGHTS)
    write_text(folder / CONFIG, json.dumps(config, indent=2, sort_keys=True) + "\n")


def check_digest(folder: Path) -> None:
    """Raise if the SHA-256 of the weights is not the one in config.json; a missing one is accepted."""
    path = folder / WEIGHTS
    expected = read_json(folder / CONFIG, "export the model again").get(DIGEST)
    if expected is not None and file_digest(path) != expected:
        raise UsageError(
            f"{path} is damaged: its SHA-256 is not the one in {CONFIG}, so the file has changed since the export; "
            "copy or download the folder again, or export the model again"
        )


def file_digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_header(path: Path) -> None:
    """Raise if the header of a safetensors file is longer than any model needs."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    if length > MAX_HEADER_BYTES:
        raise UsageError(
            f"{path} is not a readable safetensors file: its header claims {length:,} bytes, the limit is "
            f"{MAX_HEADER_BYTES:,}; export the model again"
        )


def load_weights(model: nn.Module, folder: Path) -> None:
    """Load the weights of the folder into the model; all names must match, and the file must be undamaged."""
    import safetensors.torch

    path = folder / WEIGHTS
    if not path.is_file():
        raise UsageError(f"{folder} has no {WEIGHTS}; give a folder that `fna-lightning export` wrote")
    check_header(path)
    try:
        safetensors.torch.load_file(path)
    except Exception as error:
        # A damaged file can raise almost any exception.
        raise UsageError(
            f"{path} is not a readable safetensors file: {first_line(error)}; export the model again"
        ) from error
    try:
        safetensors.torch.load_model(model, path)
    except (RuntimeError, ValueError, TypeError) as error:
        raise UsageError(
            f"the weights in {path} do not fit the model_config in {CONFIG}: {one_line(error)}; both must "
            "come from one export"
        ) from error
    check_digest(folder)
