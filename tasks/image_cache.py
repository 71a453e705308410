"""Images on disk: decoded once into one array, then mapped into memory."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.image_data import Images

# the (C, S, S) pixels of one image, by its number
Pixels = Callable[[int], NDArray[np.uint8]]


def write_images(folder: Path, pixels: Pixels, labels: list[int], shape: tuple[int, int, int]) -> None:
    """Write images and labels into ``folder``, one image at a time."""
    array = np.lib.format.open_memmap(folder / "images.npy", mode="w+", dtype=np.uint8, shape=(len(labels), *shape))
    for number in range(len(labels)):
        array[number] = pixels(number)
    array.flush()
    np.save(folder / "labels.npy", np.asarray(labels, dtype=np.int64))


def open_images(folder: Path) -> Images:
    """Return the images in ``folder``; their pixels stay on disk until they are read."""
    return Images.of(np.load(folder / "images.npy", mmap_mode="r"), np.load(folder / "labels.npy"))
