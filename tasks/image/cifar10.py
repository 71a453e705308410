"""CIFAR-10 (Krizhevsky, 2009): 50,000 color images of 32 x 32 pixels for training and 10,000 for testing."""

from collections.abc import Callable
from functools import cache, cached_property, partial
from pathlib import Path

from fna_lightning.tasks.data.cache import cache_folder, ensure
from fna_lightning.tasks.data.splits import check_validation_share, train_or_val_rows
from fna_lightning.tasks.image.cache import open_images, write_images
from fna_lightning.tasks.image.cifar10_source import LABELS, SIZE, LabelledImages, cifar10_source
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.image.data import ImageData, Images

# part of every cache key: increase it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class Cifar10Data(ImageData):
    """Small photographs in ten classes. A share of the training images is held out for validation.

    Images are decoded once into an array in the cache ($FNA_CACHE, else ~/.cache/fna_lightning), which is
    memory-mapped.

    Args:
        path: a folder with train-*.parquet and test-*.parquet, a folder that contains torchvision's
            cifar-10-batches-py, or ``hub:`` and a name on the hub; by default $FNA_DATA/cifar10 if it exists, else
            hub:uoft-cs/cifar10.
        validation: share of the training images that is held out, equal for each class.
        split_seed: random seed of the held-out images.
        batch_size: images per batch and process.
        num_workers: number of worker processes that load batches; the images are in memory, so 0 is fastest.
        predict_folder: a folder of images without labels that ``predict`` reads instead of the test split.
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
        check_validation_share(validation)
        self.source = cifar10_source(path)
        self.validation = validation
        self.split_seed = split_seed

    @property
    def codec(self) -> ImageCodec:
        return ImageCodec(list(LABELS), 3, SIZE)

    def prepare_data(self) -> None:
        """Fill the cache where it is missing or damaged."""
        # the data set is read at most once, and only if a part of the cache is missing
        read = cache(self.source.read)
        for name in ("train", "test"):
            ensure(self._folders[name], partial(_write_split, name, read))

    def split(self, name: str) -> Images:
        if name == "test":
            return open_images(self._folders["test"])
        images = open_images(self._folders["train"])
        return images.take(train_or_val_rows(images.labels, name, self.validation, self.split_seed))

    @cached_property
    def _folders(self) -> dict[str, Path]:
        settings = {"format": CACHE_FORMAT, "source": self.source.fingerprint}
        return {name: cache_folder("cifar10", name, **settings) for name in ("train", "test")}


def _write_split(name: str, read: Callable[[], dict[str, LabelledImages]], draft: Path) -> None:
    pixels, labels = read()[name]
    write_images(draft, pixels, labels, (3, SIZE, SIZE))
