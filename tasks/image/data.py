"""Base class of image classification data sets, and their batches."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fna_lightning.tasks.data.classification import ClassificationData
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.image.files import read_folder
from fna_lightning.training.samplers import LengthGroupedBatchSampler


class ImageBatch(NamedTuple):
    """Images and their labels."""

    images: Tensor  # (B, C, S, S), uint8
    labels: Tensor  # (B,), -1 for unknown


@dataclass(frozen=True)
class Images(Dataset[ImageBatch]):
    """A subset of the images in one array, which may be memory-mapped.

    Args:
        pixels: (N, C, S, S) pixels of all images.
        labels: (N,) labels of all images.
        rows: indices of the images in the subset.
    """

    pixels: NDArray[np.uint8]
    labels: NDArray[np.integer]
    rows: NDArray[np.integer]

    @classmethod
    def of(cls, pixels: NDArray[np.uint8], labels: NDArray[np.integer]) -> "Images":
        """Return all images of an array."""
        return cls(pixels, labels, np.arange(len(labels)))

    def take(self, rows: NDArray[np.integer]) -> "Images":
        """Return the images at ``rows`` of this subset without copying pixels."""
        return Images(self.pixels, self.labels, self.rows[rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ImageBatch:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> ImageBatch:
        # PyTorch's DataLoader calls this method, so that a batch is copied at once
        rows = self.rows[indices]
        return ImageBatch(
            torch.from_numpy(np.ascontiguousarray(self.pixels[rows])),
            torch.from_numpy(self.labels[rows].astype(np.int64)),
        )


def collate_images(batches: ImageBatch | list[ImageBatch]) -> ImageBatch:
    """Return one batch; ``Images.__getitems__`` has already collated it."""
    if isinstance(batches, ImageBatch):
        return batches
    images, labels = zip(*batches, strict=True)
    return ImageBatch(torch.cat(images), torch.cat(labels))


class ImageData(ClassificationData[Images]):
    """An image classification data set.

    A subclass knows its codec as soon as it is constructed, and returns its splits.

    Args:
        batch_size: images per batch and process.
        num_workers: number of worker processes that load batches; the images are in memory, so 0 is fastest.
        predict_folder: a folder of images without labels that ``predict`` reads instead of the test split.
    """

    def __init__(self, *, batch_size: int = 64, num_workers: int = 0, predict_folder: str | None = None) -> None:
        super().__init__(batch_size=batch_size, num_workers=num_workers)
        self.predict_folder = predict_folder

    @property
    @abstractmethod
    def codec(self) -> ImageCodec:
        """The codec that is stored in checkpoints."""

    @property
    def class_names(self) -> list[str]:
        return self.codec.class_names

    @property
    def channels(self) -> int:
        return self.codec.channels

    @property
    def image_size(self) -> int:
        return self.codec.image_size

    def predict_dataloader(self) -> DataLoader[Any]:
        if self.predict_folder is None:
            return super().predict_dataloader()
        pixels, _ = read_folder(self.predict_folder, self.codec)
        return self._loader(Images.of(pixels, np.full(len(pixels), -1)))

    def example_names(self) -> list[str] | None:
        """Return the file names of the examples of ``predict``, or None if it reads the test split."""
        return None if self.predict_folder is None else read_folder(self.predict_folder, self.codec)[1]

    def _batches(self, examples: Images, **share: Any) -> LengthGroupedBatchSampler:
        # all images have the same number of tokens
        return LengthGroupedBatchSampler(np.ones(len(examples), dtype=np.int64), self.batch_size, **share)

    def _join(self) -> Callable[[Any], ImageBatch]:
        return collate_images
