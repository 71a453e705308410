"""CIFAR-10 (Krizhevsky, 2009): 50,000 colour images of 32 x 32 to learn from and 10,000 to be tested on."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path

import numpy as np

from fna_lightning.tasks.data.cache import cache_root, content_key, ensure
from fna_lightning.tasks.data.splits import stratified
from fna_lightning.tasks.image.cache import open_images, write_images
from fna_lightning.tasks.image.cifar10_source import LABELS, SIZE, LabelledImages, cifar10_source
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.image.data import ImageData, Images

# part of every key: raise it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class Cifar10Data(ImageData):
    """Small photographs of ten kinds of things; a part of the training images is held out for validation.

    Images are decoded once, into one array in a cache ($FNA_CACHE, else ~/.cache/fna_lightning), and mapped from there.

    Args:
        path: a folder with train-*.parquet and test-*.parquet, a folder that holds torchvision's cifar-10-batches-py,
            or a name on the hub; by default $FNA_DATA/cifar10 if it is there, else the hub's uoft-cs/cifar10.
        validation: share of the training images that is held out, the same share of each class.
        split_seed: of the choice of what is held out.
        batch_size: images in a batch of one process.
        num_workers: processes that load batches beside the training one; the images are in memory, so 0 is fastest.
        predict_folder: a folder of PNG and JPEG files that ``predict`` reads instead of the test split.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        validation: float = 0.1,
        split_seed: int = 0,
        batch_size: int = 64,
        num_workers: int = 0,
        predict_folder: str | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, predict_folder=predict_folder)
        if not 0.0 < validation < 1.0:
            raise ValueError(f"validation must lie between 0 and 1, got {validation}; 0.1 holds out every tenth image")
        self.source = cifar10_source(path)
        self.validation = validation
        self.split_seed = split_seed

    @property
    def codec(self) -> ImageCodec:
        return ImageCodec(list(LABELS), 3, SIZE)

    def prepare_data(self) -> None:
        """Fill the cache, where it is not filled and intact."""
        # read when something is missing, and then once
        read = cache(self.source.read_images)
        for name in ("train", "test"):
            ensure(self._folders[name], partial(_write_split, name, read))

    def split(self, name: str) -> Images:
        if name == "test":
            return open_images(self._folders["test"])
        everything = open_images(self._folders["train"])
        held_out = stratified(everything.labels, self.validation, self.split_seed)
        return everything.take(np.flatnonzero(held_out if name == "val" else ~held_out))

    @cached_property
    def _folders(self) -> dict[str, Path]:
        key = content_key(format=CACHE_FORMAT, source=self.source.fingerprint)
        return {name: cache_root() / "cifar10" / f"{name}-{key}" for name in ("train", "test")}


def _write_split(name: str, read: Callable[[], dict[str, LabelledImages]], draft: Path) -> None:
    pixels, labels = read()[name]
    write_images(draft, pixels, labels, (3, SIZE, SIZE))
