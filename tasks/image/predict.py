"""Classify image files with a trained model."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.codec import ENDINGS, ImageCodec
from fna_lightning.tasks.image.files import list_images

BATCH = 32


def image_files(paths: list[str]) -> list[Path]:
    """Return the files that ``paths`` name; a folder stands for all images in it and its subfolders."""
    files: list[Path] = []
    for path in map(Path, paths):
        images = list_images(path, path) if path.is_dir() else [path]
        if not images:
            raise UsageError(f"the folder {path} contains no image; file names must end in {', '.join(ENDINGS)}")
        files += images
    return files


def classify_images(model: nn.Module, codec: ImageCodec, files: list[Path]) -> Iterator[dict[str, Any]]:
    """Yield the file, the label, its probability and the probabilities of all classes of each image.

    Args:
        model: maps (B, C, S, S) pixels to (B, classes) logits; in evaluation mode.
        codec: the codec of the model.
        files: the image files.
    """
    for start in range(0, len(files), BATCH):
        batch = files[start : start + BATCH]
        pixels = torch.from_numpy(np.stack([codec.read(file) for file in batch]))
        with torch.inference_mode():
            probabilities = model(pixels).softmax(dim=-1)
        for file, row in zip(batch, probabilities.tolist(), strict=True):
            by_class = dict(zip(codec.class_names, row, strict=True))
            label = max(by_class, key=by_class.__getitem__)
            yield {"file": str(file), "label": label, "probability": by_class[label], "probabilities": by_class}
