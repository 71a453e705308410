"""Images as fields: the color of a pixel as a function of its position."""

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.data.classification import ClassificationData
from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeArrays, EpisodeConfig
from fna_lightning.tasks.fields.surveys import cut
from fna_lightning.tasks.fields.terrain import sample_photographs

COLORS = {1: ["gray"], 3: ["red", "green", "blue"]}
# Side of a crop of the embedded photographs, the distance of their corners, and the factor by which they are reduced.
CROP, STRIDE, REDUCTION = 32, 4, 2


class PixelFields(FieldData):
    """Random pixels of images; the other pixels are predicted. Positions are in [-1, 1]^2 and colors in [-1, 1].

    Args:
        images: a data module of images, such as ``Cifar10Data`` or ``DigitsData``, whose splits are used; None takes
            crops of 32 x 32 pixels of scikit-learn's sample photographs, of which the first trains and validates and
            the second tests.
        survey: how pixels are chosen in training: "even", all with the same probability, or "fovea", dense around a
            random center and sparse far from it.
        eval_surveys: surveys of the evaluation sets; None takes ``survey``.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    surveys = ("even", "fovea")

    def __init__(
        self,
        *,
        images: ClassificationData | None = None,
        survey: str = "even",
        eval_surveys: list[str] | None = None,
        episodes: EpisodeConfig = EpisodeConfig(context=(16, 128), eval_context=(16, 64, 256, 768)),  # noqa: B008
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(episodes=episodes, batch_size=batch_size, seed=seed)
        self.choose_surveys(survey, eval_surveys)
        if images is not None and not {"channels", "image_size"} <= set(dir(images)):
            raise ValueError(
                f"images must be a data module of images, such as Cifar10Data, got {type(images).__name__}"
            )
        self.images = images
        # The base class of image data modules belongs to another task.
        sizes: Any = images
        self.channels: int = 3 if images is None else sizes.channels
        self.side: int = CROP if images is None else sizes.image_size
        largest = max(*episodes.context, *episodes.eval_context) + episodes.queries
        if largest > self.side**2:
            raise ValueError(
                f"an image has {self.side**2} pixels, but an episode needs {largest} for context and queries; reduce "
                "context, eval_context or queries"
            )
        self._arrays: dict[str, tuple[NDArray[np.uint8], NDArray[np.integer]]] = {}

    @property
    def codec(self) -> FieldCodec:
        return FieldCodec(["row", "column"], COLORS.get(self.channels, [f"channel {i}" for i in range(self.channels)]))

    def prepare_data(self) -> None:
        """Let the data module of the images fill its cache."""
        if self.images is not None:
            self.images.prepare_data()

    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        pixels, rows = self._pixels(split)
        chosen = np.sort(rows[rng.integers(0, len(rows), count)])
        points = context + self.episodes.queries
        scores = rng.gumbel(size=(count, self.side**2)).astype(np.float32)
        if survey == "fovea":
            scores += self._foveas(rng, count)
        # The pixels with the largest scores are a sample without replacement; it is in random order for "even" only.
        flat = np.argpartition(-scores, points - 1, axis=1)[:, :points]
        flat = np.take_along_axis(flat, rng.random((count, points)).argsort(axis=1), axis=1)
        row, column = np.divmod(flat, self.side)
        scale = 2.0 / (self.side - 1)
        x = np.stack([row, column], axis=-1).astype(np.float32) * scale - 1.0
        images = np.asarray(pixels[chosen])  # (count, C, S, S)
        y = images[np.arange(count)[:, None], :, row, column].astype(np.float32) / 127.5 - 1.0
        return cut(x, y, context)

    def _foveas(self, rng: np.random.Generator, count: int) -> NDArray[np.float32]:
        """Return the (count, pixels) log-odds of the pixels around a random center, at distance r: -2 log(r + 1)."""
        center = rng.uniform(0, self.side, (count, 2, 1))
        row, column = np.divmod(np.arange(self.side**2), self.side)
        distance = np.hypot(row - center[:, 0], column - center[:, 1])
        return (-2.0 * np.log1p(distance)).astype(np.float32)

    def _pixels(self, split: str) -> tuple[NDArray[np.uint8], NDArray[np.integer]]:
        """Return the (N, C, S, S) pixels of all images and the indices of those that belong to the split."""
        if split not in self._arrays:
            if self.images is None:
                crops = photograph_crops(split)
                self._arrays[split] = crops, np.arange(len(crops))
            else:
                images: Any = self.images.split(split)
                self._arrays[split] = images.pixels, images.rows
        return self._arrays[split]


@cache
def photograph_crops(split: str) -> NDArray[np.uint8]:
    """Return the (N, 3, 32, 32) crops of the photograph of a split, reduced to half its size."""
    photograph = sample_photographs()[int(split == "test")]
    height, width = (size // REDUCTION * REDUCTION for size in photograph.shape[:2])
    blocks = photograph[:height, :width].reshape(height // REDUCTION, REDUCTION, width // REDUCTION, REDUCTION, 3)
    reduced = np.rint(blocks.mean(axis=(1, 3))).astype(np.uint8)
    windows = np.lib.stride_tricks.sliding_window_view(reduced, (CROP, CROP), axis=(0, 1))  # (rows, columns, 3, 32, 32)
    return windows[::STRIDE, ::STRIDE].reshape(-1, 3, CROP, CROP)
