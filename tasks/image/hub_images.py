"""An image data set of the Hugging Face hub."""

import json
import logging
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.cache import cache_folder, cached_files, ensure
from fna_lightning.tasks.data.locations import HUB_NAME, HUB_PREFIX, is_on_hub, local_copy
from fna_lightning.tasks.image.cache import open_images, write_images
from fna_lightning.tasks.image.codec import ImageCodec, check_shape
from fna_lightning.tasks.image.data import ImageData, Images
from fna_lightning.tasks.image.files import checked_folder
from fna_lightning.tasks.image.held_out import check_held_out, consecutive_rows, with_held_out
from fna_lightning.tasks.image.hub_source import HubImageSource

log = logging.getLogger(__name__)

# part of every cache key: increase it when the files of the cache or their meaning change
CACHE_FORMAT = 1


class HubImages(ImageData):
    """An image data set of the Hugging Face hub, by its name.

    The images may have any size. The center square of each image is resized once, into an array in the cache
    ($FNA_CACHE, else ~/.cache/fna_lightning), which is memory-mapped. A data set without a validation or test split
    gets one that is held out of the training images.

    Args:
        path: ``hub:`` and a name on the hub, such as hub:ylecun/mnist, or a folder with its parquet files; required.
        image_column: column of the images.
        label_column: column of the labels: integers or strings.
        image_size: height and width of the resized images in pixels.
        channels: 3 for color (gray images get three equal channels), 1 for gray (colors are removed).
        held_out: share of each class that is held out for validation, and again for the test split, where the data set
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
        image_column: str = "image",
        label_column: str = "label",
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
        self.held_out = check_held_out(held_out)
        self.split_seed = split_seed
        self.source = HubImageSource(hub_name_or_folder(path), image_column, label_column)
        self.shape = (channels, image_size, image_size)

    @cached_property
    def codec(self) -> ImageCodec:
        # the classes are in the data set, so it is downloaded here at the latest
        class_names = self._facts["class_names"]
        return ImageCodec(class_names, self.shape[0], self.shape[1])

    @property
    def channels(self) -> int:
        return self.shape[0]

    @property
    def image_size(self) -> int:
        return self.shape[1]

    def prepare_data(self) -> None:
        """Download the data set and resize the images, unless the cache has them."""
        ensure(self._cache, self._write)

    def split(self, name: str) -> Images:
        images = open_images(self._cache)
        return images.take(self._rows(images.labels)[name])

    def _rows(self, labels: NDArray[np.integer]) -> dict[str, NDArray[np.integer]]:
        rows = consecutive_rows(self._facts["sizes"])
        return with_held_out(rows, labels, self.held_out, self.split_seed, self.codec.class_names)

    @cached_property
    def _facts(self) -> dict[str, Any]:
        """Names of the classes, and the number of images in each split."""
        self.prepare_data()
        with cached_files(self._cache):
            facts: dict[str, Any] = json.loads((self._cache / "facts.json").read_text(encoding="utf-8"))
        return facts

    @cached_property
    def _cache(self) -> Path:
        settings = {
            "format": CACHE_FORMAT,
            "source": self.source.fingerprint,
            "columns": [self.source.image_column, self.source.label_column],
            "shape": self.shape,
        }
        return cache_folder("hub_images", "images", **settings)

    def _write(self, draft: Path) -> None:
        with self.source.open() as splits:
            images = self.source.read(splits)
            log.info("reading %s images of %s, once; later runs use the cache", f"{len(images):,}", self.source.path)
            write_images(
                draft, lambda row: images.pixels(row, self.channels, self.image_size), images.labels, self.shape
            )
        facts = {"class_names": images.class_names, "sizes": images.sizes}
        (draft / "facts.json").write_text(json.dumps(facts), encoding="utf-8")


def hub_name_or_folder(path: str | None) -> str:
    """Return ``path`` if it is ``hub:`` and a name on the hub, or its copy in $FNA_DATA, or a folder that exists."""
    example = f"{HUB_PREFIX}ylecun/mnist"
    if not path:
        raise UsageError(
            f"--data.path is not set; it must name a data set on the hub, for example --data.path {example}"
        )
    if is_on_hub(path):
        return local_copy(path)
    try:
        return str(checked_folder(path, "--data.path", example))
    except UsageError as error:
        if not HUB_NAME.fullmatch(path) or Path(path).exists():
            raise
        raise UsageError(f"{error}; a data set on the hub is written {HUB_PREFIX}{path}") from error
