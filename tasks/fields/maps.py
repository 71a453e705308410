"""Maps: a field predicted on a grid from all points of a table."""

import itertools
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import evaluating
from fna_lightning.plotting.fields import map_figure
from fna_lightning.tasks.fields.likelihood import CategoricalLikelihood
from fna_lightning.tasks.fields.surveys import FLAT
from fna_lightning.tasks.fields.table import PointTable
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.utils.escaping import csv_text
from fna_lightning.utils.files import atomic_write, write_text

PICTURE, NUMBERS = "map.png", "map.csv"
# Most context points of a map, and queries that are predicted at once.
MOST_POINTS, CHUNK = 20_000, 4096


@dataclass(frozen=True)
class PredictedMap:
    """A field on a grid with the points from which it is predicted.

    Attributes:
        grid: coordinates of the grid along each axis.
        mean: predicted values, with one dimension per axis.
        deviation: predicted standard deviations; None if the model does not predict them.
        points: (n, axes + 1) coordinates and values of the measured points.
        names: names of the coordinates and of the value.
    """

    grid: list[NDArray[np.float64]]
    mean: NDArray[np.float64]
    deviation: NDArray[np.float64] | None
    points: NDArray[np.float64]
    names: list[str]

    def figure(self) -> Figure:
        """Return a picture of the map."""
        return map_figure(self.grid, self.mean, self.deviation, self.points, self.names)

    def write(self, folder: Path) -> None:
        """Write map.png and map.csv to a folder."""
        figure = self.figure()
        atomic_write(folder / PICTURE, lambda file: figure.savefig(file, format="png"))
        columns = [self.mean.ravel()] if self.deviation is None else [self.mean.ravel(), self.deviation.ravel()]
        header = [*self.names, *(["standard_deviation"] if self.deviation is not None else [])]
        rows = zip(itertools.product(*self.grid), *columns, strict=True)
        lines = [[*map(float, position), *map(float, values)] for position, *values in rows]
        write_text(folder / NUMBERS, csv_text([header, *lines]))


def predict_map(task: FieldRegression, table: PointTable, resolution: int = 100) -> PredictedMap:
    """Return the field that a model predicts on a grid from the points of a table.

    Args:
        task: a trained model with one value per point.
        table: the measured points; of more than 20,000, a random sample is used.
        resolution: number of grid points along each axis.

    Raises:
        UsageError: if the model or the table has no map.
    """
    check_map(task, table, resolution)
    rows = np.arange(len(table))
    if len(rows) > MOST_POINTS:
        rows = np.random.default_rng(0).permutation(rows)[:MOST_POINTS]
    low, high = table.coordinates.min(axis=0), table.coordinates.max(axis=0)
    grid = [np.linspace(start, stop, resolution) for start, stop in zip(low, high, strict=True)]
    positions = np.stack(np.meshgrid(*grid, indexing="ij"), axis=-1).reshape(-1, len(grid))
    values = table.values[rows]
    # the same scale as in training, see ``surveys.standardized``
    center, scale = values.mean(), max(values.std(), FLAT * table.values.std())
    context_x = _tensor(table.scaled_coordinates()[rows], task)
    context_y = _tensor(((values - center) / scale)[:, None], task)
    means, deviations = [], []
    with torch.no_grad(), evaluating(task):
        for queries in _tensor(table.scaled_coordinates(positions), task).split(CHUNK, dim=1):
            mean, deviation = task.predict_field(context_x, context_y, queries)
            means.append(mean)
            deviations.append(deviation)
    shape = (resolution,) * len(grid)
    mean_map = center + scale * torch.cat(means, dim=1).double().cpu().numpy().reshape(shape)
    deviation_map = None
    if all(deviation is not None for deviation in deviations):
        known = [deviation for deviation in deviations if deviation is not None]
        deviation_map = scale * torch.cat(known, dim=1).double().cpu().numpy().reshape(shape)
    points = np.column_stack([table.coordinates[rows], values])
    return PredictedMap(grid, mean_map, deviation_map, points, table.names)


def check_map(task: FieldRegression, table: PointTable, resolution: int = 100) -> None:
    """Raise a ``UsageError`` unless the model can predict a map of these points."""
    axes = len(table.names) - 1
    if axes > 2:
        raise UsageError(f"a map needs one or two coordinates, got {axes}: {', '.join(table.names[:-1])}")
    if resolution < 2:
        raise UsageError(f"resolution must be at least 2, got {resolution}")
    if isinstance(task.likelihood, CategoricalLikelihood):
        raise UsageError("this model predicts labels, and a map needs a model that predicts values")
    network = task.network
    if (network.coordinate_dim, network.value_dim) != (axes, 1):
        raise UsageError(
            f"this model has {network.coordinate_dim} coordinates and {network.value_dim} values per point, but the "
            f"table has {axes} and 1; use a model that was trained on such points"
        )


def _tensor(array: NDArray[np.floating], task: FieldRegression) -> torch.Tensor:
    """Return an array as a batch of one episode."""
    return torch.from_numpy(array.astype(np.float32))[None].to(task.device)
