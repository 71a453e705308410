"""Checkpoint plugin for Lightning: atomic writes, and reads that never execute code."""

import logging
import os
from pathlib import Path
from types import FunctionType, MethodType
from typing import Any, BinaryIO

import torch
from lightning.fabric.plugins import TorchCheckpointIO

from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.utils.files import atomic_write

log = logging.getLogger(__name__)

SUFFIX = ".ckpt"


class AtomicCheckpointIO(TorchCheckpointIO):
    """Writes a checkpoint atomically; reading it accepts only tensors and plain values."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | os.PathLike[str], storage_options: Any | None = None
    ) -> None:
        plain = without_functions(checkpoint)

        def write(file: BinaryIO) -> None:
            try:
                torch.save(plain, file)
            except RuntimeError as error:
                # PyTorch's writer raises RuntimeError for a full disk, with the OSError as its context.
                if isinstance(error.__context__, OSError):
                    raise error.__context__ from error
                raise

        atomic_write(Path(path), write)

    def load_checkpoint(
        self, path: str | os.PathLike[str], map_location: Any | None = None, weights_only: bool | None = None
    ) -> dict[str, Any]:
        return read_checkpoint(os.fspath(path))

    def remove_checkpoint(self, path: str | os.PathLike[str]) -> None:
        """Remove a checkpoint file and nothing else.

        The path may come from the state of a callback in a checkpoint of unknown origin, and Lightning's own method
        deletes whole folders.
        """
        file = Path(path)
        if file.suffix == SUFFIX and file.is_file():
            file.unlink()
        elif file.exists():
            log.warning("%s is not removed: it is not a checkpoint file (*%s)", path, SUFFIX)


def without_functions(state: Any) -> Any:
    """Return nested dictionaries and lists without the functions in them, which ``read_checkpoint`` would refuse.

    Some schedules of PyTorch keep functions in their state although their constructor sets them again.
    """
    if type(state) is dict:
        return {
            key: without_functions(value)
            for key, value in state.items()
            if not isinstance(value, FunctionType | MethodType)
        }
    return [without_functions(value) for value in state] if type(state) is list else state
