"""Your own images in class folders."""

import logging
from functools import cached_property
from pathlib import Path

import numpy as np

from fna_lightning.tasks.data.cache import cache_folder, ensure
from fna_lightning.tasks.image.cache import open_images, write_images
from fna_lightning.tasks.image.class_folders import read_class_folders
from fna_lightning.tasks.image.codec import ImageCodec, check_shape
from fna_lightning.tasks.image.data import ImageData, Images
from fna_lightning.tasks.image.files import checked_folder
from fna_lightning.tasks.image.held_out import check_held_out, consecutive_rows, with_held_out

log = logging.getLogger(__name__)

# part of every cache key: increase it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class ImageFolder(ImageData):
    """Your own images: a folder with one subfolder per class, whose name is the name of the class.

    The images may have any size and may be JPEG, PNG, WebP, BMP or GIF files. The center square of each image is
    resized once, into an array in the cache ($FNA_CACHE, else ~/.cache/fna_lightning), which is memory-mapped. The
    folder may also contain the folders train, val and test (or train and one of them), each with the class folders. A
    split without a folder is held out of the training images.

    Args:
        path: the folder; required.
        image_size: height and width of the resized images in pixels.
        channels: 3 for color (gray images get three equal channels), 1 for gray (colors are removed).
        held_out: share of each class that is held out for validation, and again for the test split, where the folder
            has no such split; at least one image of each class.
        split_seed: random seed of the held-out images.
        batch_size: images per batch and process.
        num_workers: number of worker processes that load batches; the images are in memory, so 0 is fastest.
        predict_folder: a folder of images without labels that ``predict`` reads instead of the test split.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        image_size: int = 64,
        channels: int = 3,
        held_out: float = 0.1,
        split_seed: int = 0,
        batch_size: int = 32,
        num_workers: int = 0,
        predict_folder: str | None = None,
    ) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers, predict_folder=predict_folder)
        check_shape(channels, image_size)
        check_held_out(held_out)
        self.root = checked_folder(path, "--data.path", "photos/")
        folders = read_class_folders(self.root)
        self.files = [file for files in folders.files.values() for file in files]
        self.labels = np.array([label for labels in folders.labels.values() for label in labels])
        rows = consecutive_rows({name: len(files) for name, files in folders.files.items()})
        self.rows = with_held_out(rows, self.labels, held_out, split_seed, folders.class_names)
        self._codec = ImageCodec(folders.class_names, channels, image_size)

    @property
    def codec(self) -> ImageCodec:
        return self._codec

    def prepare_data(self) -> None:
        """Read and resize the images, unless the cache has them."""
        ensure(self._cache, self._write)

    def split(self, name: str) -> Images:
        return open_images(self._cache).take(self.rows[name])

    def example_names(self) -> list[str]:
        """Return the file names of the examples of ``predict``."""
        if self.predict_folder is not None:
            return super().example_names() or []
        return [str(self.files[row].relative_to(self.root)) for row in self.rows["test"]]

    @cached_property
    def _cache(self) -> Path:
        # the content of large photographs takes minutes to read, so a change is recognized by size and time
        files = [
            (str(file.relative_to(self.root)), file.stat().st_size, file.stat().st_mtime_ns) for file in self.files
        ]
        return cache_folder(
            "image_folder",
            "images",
            format=CACHE_FORMAT,
            root=str(self.root.resolve()),
            files=files,
            labels=self.labels.tolist(),
            channels=self.channels,
            image_size=self.image_size,
        )

    def _write(self, draft: Path) -> None:
        log.info("reading %s images of %s, once; later runs use the cache", f"{len(self.files):,}", self.root)
        shape = (self.channels, self.image_size, self.image_size)
        write_images(draft, lambda row: self.codec.read(self.files[row]), self.labels.tolist(), shape)
