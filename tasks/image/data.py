"""What every image classification data set shares: one array of pixels, batches, and what a model must know of them."""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from fna_lightning.tasks.data.split_data import SplitData
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.image.folder import read_folder
from fna_lightning.training.samplers import LengthGroupedBatchSampler


class ImageBatch(NamedTuple):
    """Images with their labels."""

    images: Tensor  # (B, C, S, S), uint8
    labels: Tensor  # (B,), -1 where nobody knows


@dataclass(frozen=True)
class Images(Dataset[ImageBatch]):
    """Images in one uint8 array, which may be a file, and the rows of it that belong to a split."""

    pixels: NDArray[np.uint8]
    labels: NDArray[np.integer]
    rows: NDArray[np.integer]

    @classmethod
    def of(cls, pixels: NDArray[np.uint8], labels: NDArray[np.integer]) -> "Images":
        """Take all of an array."""
        return cls(pixels, labels, np.arange(len(labels)))

    def take(self, rows: NDArray[np.integer]) -> "Images":
        """Return some of the images; no pixel is copied."""
        return Images(self.pixels, self.labels, self.rows[rows])

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> ImageBatch:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> ImageBatch:
        # one copy for the whole batch; PyTorch's loader asks for this method
        rows = self.rows[indices]
        return ImageBatch(
            torch.from_numpy(np.ascontiguousarray(self.pixels[rows])),
            torch.from_numpy(self.labels[rows].astype(np.int64)),
        )


def join(batches: ImageBatch | list[ImageBatch]) -> ImageBatch:
    """Return one batch; what the loader fetched is one already."""
    if isinstance(batches, ImageBatch):
        return batches
    images, labels = zip(*batches, strict=True)
    return ImageBatch(torch.cat(images), torch.cat(labels))


class ImageData(SplitData[Images]):
    """An image classification data set.

    A subclass says how large its images are and how many classes there are, as soon as it is constructed, and hands
    out its splits.

    Args:
        batch_size: images in a batch of one process.
        num_workers: processes that load batches beside the training one; the images are in memory, so 0 is fastest.
        predict_folder: a folder of PNG and JPEG files that ``predict`` reads instead of the test split.
    """

    def __init__(self, *, batch_size: int = 64, num_workers: int = 0, predict_folder: str | None = None) -> None:
        super().__init__(num_workers=num_workers)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size
        self.predict_folder = predict_folder

    @property
    @abstractmethod
    def codec(self) -> ImageCodec:
        """How a picture becomes pixels and a class number a name; the checkpoints of a task carry it."""

    @property
    def num_classes(self) -> int:
        return len(self.codec.class_names)

    @property
    def channels(self) -> int:
        return self.codec.channels

    @property
    def image_size(self) -> int:
        return self.codec.image_size

    def predict_dataloader(self) -> DataLoader[Any]:
        if self.predict_folder is None:
            return super().predict_dataloader()
        pixels, _ = read_folder(Path(self.predict_folder), self.codec)
        return self._loader(Images.of(pixels, np.full(len(pixels), -1)))

    def example_names(self) -> list[str] | None:
        """Return what the examples of ``predict`` are called: the files of its folder, if it reads one."""
        return None if self.predict_folder is None else read_folder(Path(self.predict_folder), self.codec)[1]

    def _batches(self, examples: Images, **share: Any) -> LengthGroupedBatchSampler:
        # images are all of one length
        return LengthGroupedBatchSampler(np.ones(len(examples), dtype=np.int64), self.batch_size, **share)

    def _join(self) -> Callable[[Any], ImageBatch]:
        return join
