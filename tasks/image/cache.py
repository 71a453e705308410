"""Images on disk: decoded once into one array, which is then memory-mapped."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.data.array_files import create_array, save_array
from fna_lightning.tasks.data.cache import cached_files
from fna_lightning.tasks.image.data import Images

# maps the index of an image to its (C, S, S) pixels
Pixels = Callable[[int], NDArray[np.uint8]]


def write_images(folder: Path, pixels: Pixels, labels: list[int], shape: tuple[int, int, int]) -> None:
    """Write images and labels into ``folder``, one image at a time."""
    array = create_array(folder / "images.npy", np.uint8, (len(labels), *shape))
    for index in range(len(labels)):
        array[index] = pixels(index)
    array.flush()  # type: ignore[attr-defined]
    save_array(folder / "labels.npy", np.asarray(labels, dtype=np.int64))


def open_images(folder: Path) -> Images:
    """Return the images in ``folder``; their pixels are memory-mapped."""
    with cached_files(folder):
        return Images.of(np.load(folder / "images.npy", mmap_mode="r"), np.load(folder / "labels.npy"))
