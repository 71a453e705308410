"""Own scattered data: the points of a CSV file."""

from dataclasses import replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeArrays, EpisodeConfig
from fna_lightning.tasks.fields.surveys import cut, levy_flights, standardized
from fna_lightning.tasks.fields.table import PointTable, read_points
from fna_lightning.tasks.fields.terrain import elevation_sample, read_windows

# Fewest points to train on, and the shares of the points that are held out.
LEAST_POINTS = 20
TEST_SHARE, VAL_SHARE = 0.15, 0.15
EXAMPLE_POINTS = 500


class ScatteredFile(FieldData):
    """Measurements at scattered points, read from a CSV file.

    15 % of the points are held out for validation and 15 % for test. An episode predicts points from others: in
    training both are training points, randomly rotated, reflected, reduced and shifted; in validation and test,
    held-out points are predicted from training points. Coordinates are scaled to [-1, 1], each by itself. Rows with an
    empty cell are left out, and rows with the same coordinates are replaced by one with the mean of their values.

    Args:
        path: a CSV file with a header; None takes an example, a survey of Matplotlib's elevation sample with the
            columns x, y and height.
        coordinates: names of the columns with the coordinates.
        value: name of the column with the value.
        split_seed: random seed of the held-out points.
        episodes: numbers of points and of episodes; sizes that exceed the file are reduced, and ``eval_context`` is
            extended by all training points.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    def __init__(
        self,
        *,
        path: str | None = None,
        coordinates: list[str] = ["x", "y"],  # noqa: B006 - not changed
        value: str = "height",
        split_seed: int = 0,
        episodes: EpisodeConfig = EpisodeConfig(context=(16, 1024), log_uniform=True),  # noqa: B008 - frozen
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        self.path = path
        self.names = (list(coordinates), value)
        self.split_seed = split_seed
        super().__init__(episodes=self._fitted(episodes), batch_size=batch_size, seed=seed)

    @cached_property
    def table(self) -> PointTable:
        """The points of the file."""
        coordinates, value = self.names
        if self.path is None:
            return example_survey(coordinates, value)
        return read_points(self.path, coordinates, value, LEAST_POINTS)

    @property
    def codec(self) -> FieldCodec:
        return FieldCodec(self.table.names[:-1], self.table.names[-1:])

    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        train = self._rows["train"]
        queries = self.episodes.queries
        x, y = self._points
        if split == "train":
            rows = _samples(rng, count, train, context + queries)
            return standardized(augmented(rng, cut(x[rows], y[rows], context)))
        context_rows = _samples(rng, count, train, context)
        query_rows = _samples(rng, count, self._rows[split], min(queries, len(self._rows[split])))
        return standardized(EpisodeArrays(x[context_rows], y[context_rows], x[query_rows], y[query_rows]))

    def _fitted(self, episodes: EpisodeConfig) -> EpisodeConfig:
        """Return the settings with sizes that the points of the file allow."""
        available = len(self._rows["train"])
        queries = min(episodes.queries, available // 2)
        low, high = (min(size, available - queries) for size in episodes.context)
        sizes = sorted({min(size, available) for size in episodes.eval_context} | {available})
        return replace(episodes, context=(low, high), queries=queries, eval_context=tuple(sizes))

    @cached_property
    def _points(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        return self.table.scaled_coordinates(), self.table.scaled_values()[:, None]

    @cached_property
    def _rows(self) -> dict[str, NDArray[np.integer]]:
        """Rows of the points of each split."""
        order = np.random.default_rng(self.split_seed).permutation(len(self.table))
        test, val = round(TEST_SHARE * len(order)), round(VAL_SHARE * len(order))
        return {"test": order[:test], "val": order[test : test + val], "train": order[test + val :]}


def _samples(rng: np.random.Generator, count: int, rows: NDArray[np.integer], size: int) -> NDArray[np.integer]:
    """Return (count, size) random rows; the rows of a sample are different."""
    if size * 20 < len(rows):
        # The cost of a permutation of a large file would dominate that of a training step.
        return np.stack([rng.choice(rows, size, replace=False, shuffle=False) for _ in range(count)])
    return rows[rng.random((count, len(rows))).argsort(axis=1)[:, :size]]


def augmented(rng: np.random.Generator, episodes: EpisodeArrays) -> EpisodeArrays:
    """Return episodes that are randomly rotated or reflected, reduced and shifted, half of them with the sign reversed.

    A model could otherwise learn the values by heart instead of how to predict them from the context.
    """
    count, _, dim = episodes.context_x.shape
    rotation, _ = np.linalg.qr(rng.standard_normal((count, dim, dim)))
    scale = rng.uniform(0.5, 1.0, (count, 1, 1))
    shift = rng.uniform(-1.0, 1.0, (count, 1, dim)) * (1.0 - scale)
    sign = rng.choice([-1.0, 1.0], (count, 1, 1))
    return EpisodeArrays(
        scale * (episodes.context_x @ rotation) + shift,
        sign * episodes.context_y,
        scale * (episodes.query_x @ rotation) + shift,
        sign * episodes.query_y,
    )


def example_survey(coordinates: list[str], value: str) -> PointTable:
    """Return a survey of the elevation sample along a Levy flight, in the units of the sample."""
    rng = np.random.default_rng(0)
    x = levy_flights(rng, 1, EXAMPLE_POINTS)
    values = read_windows(rng, elevation_sample(), x)
    return PointTable(x[0].astype(np.float64), values[0].astype(np.float64), [*coordinates, value])
