"""The study of field models: effective number of neighbors against the number of points, and weights over the map."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fna_lightning.analysis.models import run_data
from fna_lightning.analysis.report import ModelInfo, Summary, page_only
from fna_lightning.attention import Attention
from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.checkpoints.locate import checkpoint_file
from fna_lightning.errors import UsageError
from fna_lightning.graph import effective_neighbors
from fna_lightning.plotting.fields import WeightPanel, curve_figure, weights_figure
from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import FieldBatch
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.tasks.fields.weights import query_weights
from fna_lightning.training.run_folder import run_folder_of
from fna_lightning.utils.files import atomic_write
from fna_lightning.version import VERSION

NEIGHBORS, WEIGHTS = "neighbors.png", "weights.png"
# queries of an episode whose weights are drawn, and most heads of a single model
DRAWN_QUERIES, DRAWN_HEADS = 3, 4


@dataclass(frozen=True)
class FieldModel:
    """A trained field model: its label, its checkpoint, and the task in evaluation mode."""

    label: str
    path: Path
    task: FieldRegression
    codec: FieldCodec

    @property
    def info(self) -> ModelInfo:
        """The model in reports."""
        attentions = {repr(module) for module in self.task.modules() if isinstance(module, Attention)}
        return ModelInfo(self.label, ", ".join(sorted(attentions)), self.path.name)


@dataclass(frozen=True)
class HeadNeighbors:
    """Effective number of neighbors of one head, by evaluation set; the standard deviation is over queries."""

    layer: str
    head: int
    neighbors: dict[str, Summary]


@dataclass(frozen=True)
class Episode:
    """Weights of a few queries of one episode with two coordinates.

    Attributes:
        context: (M, 2) context points.
        queries: (Q, 2) queries, from the densest to the sparsest surroundings.
        weights: for each model, layer and head, the (Q, M) weights.
    """

    context: NDArray[np.floating]
    queries: NDArray[np.floating]
    weights: list[dict[tuple[str, int], NDArray[np.floating]]]


@dataclass(frozen=True)
class FieldReport:
    """Results of the study of field models.

    Attributes:
        version: version of fna-lightning.
        split: split of the data.
        episodes: number of episodes of each evaluation set.
        models: the studied models.
        heads: all heads of each model.
        episode: weights of one episode; None unless points have two coordinates.
    """

    version: str
    split: str
    episodes: int
    models: list[ModelInfo]
    heads: list[list[HeadNeighbors]]
    episode: Episode | None = field(metadata=page_only())


def open_field_model(path: str | Path, *, trust: bool = False) -> FieldModel | None:
    """Return the field model of a checkpoint; None if the checkpoint has a model of another kind."""
    path = checkpoint_file(path)
    checkpoint = read_checkpoint(path)
    codec = checkpoint.get("codec")
    if not isinstance(codec, dict) or codec.get("kind") != FieldCodec.kind:
        return None
    task = task_of(checkpoint, path, trust=trust)
    if not isinstance(task, FieldRegression):
        raise UsageError(f"{path} has the codec of a field model, but it is a {type(task).__name__}; train it again")
    run_folder = run_folder_of(path)
    label = run_folder.parent.name if run_folder else path.stem
    return FieldModel(label, path, task, FieldCodec.from_checkpoint(checkpoint, path))


def study_fields(models: Sequence[FieldModel], *, split: str, count: int, trust: bool = False) -> FieldReport:
    """Return the study of field models on episodes of the data that the first one was trained on.

    Args:
        models: models with the same coordinates and values.
        split: "val" or "test".
        count: number of episodes of each evaluation set.
        trust: whether the run folder may name any function or class.
    """
    first = models[0]
    for model in models[1:]:
        if model.codec != first.codec:
            raise UsageError(
                f"{model.path} has other coordinates or values than {first.path}, so they cannot be compared; analyze "
                "them one by one"
            )
    if split == "train":
        raise UsageError("training episodes have no fixed number of points; use --split val or --split test")
    data = _data(first, trust=trust)
    stream = data.split(split)
    count = min(count, stream.size)
    heads: list[list[HeadNeighbors]] = []
    for model in models:
        sets: dict[tuple[str, int], dict[str, Summary]] = {}
        for number, name in enumerate(data.eval_sets):
            batch = stream.__getitems__([number * stream.size + index for index in range(count)])
            for key, weights in query_weights(model.task, batch).items():
                values = effective_neighbors(weights)
                sets.setdefault(key, {})[name] = Summary(values.mean().item(), values.std().item(), values.numel())
        heads.append([HeadNeighbors(layer, head, values) for (layer, head), values in sets.items()])
    episode = None
    if first.task.network.coordinate_dim == 2:
        middle = data.eval_sets[len(data.episodes.eval_context) // 2]
        start = data.eval_sets.index(middle) * stream.size
        episode = _episode(models, stream.__getitems__([start]))
    return FieldReport(VERSION, split, count, [model.info for model in models], heads, episode)


def write_figures(report: FieldReport, folder: Path) -> list[str]:
    """Write the figures to a folder and return their names."""
    figures = {NEIGHBORS: _neighbor_figure(report)}
    if report.episode is not None:
        figures[WEIGHTS] = _weights_figure(report, report.episode)
    for name, figure in figures.items():
        atomic_write(folder / name, partial(figure.savefig, format="png"))
    return list(figures)


def curve_of(head: HeadNeighbors) -> dict[int, float]:
    """Return the mean number of neighbors by number of points, for the survey of training."""
    sizes = {name.removeprefix("n"): value.mean for name, value in head.neighbors.items()}
    return {int(size): mean for size, mean in sizes.items() if size.isdigit()}


def head_name(head: HeadNeighbors, heads: Sequence[HeadNeighbors]) -> str:
    """Return a short name of a head among the heads of its model."""
    single = len({other.layer for other in heads}) == 1
    return f"head {head.head}" if single else f"{head.layer} head {head.head}"


def _neighbor_figure(report: FieldReport) -> Figure:
    curves: dict[str, dict[int, float]] = {}
    for model, heads in zip(report.models, report.heads, strict=True):
        prefix = f"{model.label}, " if len(report.models) > 1 else ""
        shown = heads if len(report.models) == 1 else [_narrowest(heads)]
        for head in shown:
            curves[prefix + head_name(head, heads)] = curve_of(head)
    return curve_figure(curves, "effective number of neighbors")


def _narrowest(heads: Sequence[HeadNeighbors]) -> HeadNeighbors:
    """Return the head with the fewest neighbors at the largest number of points."""
    return min(heads, key=lambda head: list(curve_of(head).values())[-1])


def _weights_figure(report: FieldReport, episode: Episode) -> Figure:
    """Return the weights of the first heads of one model, or of the narrowest head of each of several models."""
    columns: dict[str, NDArray[np.floating]] = {}
    for model, heads, weights in zip(report.models, report.heads, episode.weights, strict=True):
        if len(report.models) == 1:
            for head in heads[:DRAWN_HEADS]:
                columns[head_name(head, heads)] = weights[head.layer, head.head]
        else:
            narrow = _narrowest(heads)
            columns[f"{model.label}\n{head_name(narrow, heads)}"] = weights[narrow.layer, narrow.head]
    rows = [
        [WeightPanel(title, query, values[number]) for title, values in columns.items()]
        for number, query in enumerate(episode.queries)
    ]
    return weights_figure(episode.context, rows)


def _episode(models: Sequence[FieldModel], batch: FieldBatch) -> Episode:
    context, queries = batch.context_x[0], batch.query_x[0]
    nearest = torch.cdist(queries, context).sort(dim=1).values[:, : min(4, len(context))].mean(dim=1)
    order = nearest.argsort()
    rows = order[torch.linspace(0, len(order) - 1, min(DRAWN_QUERIES, len(order))).long()]
    weights = [
        {key: values[0, rows].numpy() for key, values in query_weights(model.task, batch).items()} for model in models
    ]
    return Episode(context.numpy(), queries[rows].numpy(), weights)


def _data(model: FieldModel, *, trust: bool) -> FieldData:
    folder = run_folder_of(model.path)
    if folder is None:
        raise UsageError(
            f"{model.path} is not in a run folder, so its data set is unknown; move the checkpoint back to "
            "RUN/checkpoints next to RUN/config.yaml"
        )
    data: Any = run_data(folder / "config.yaml", trust=trust)
    if not isinstance(data, FieldData):
        raise UsageError(f"{folder / 'config.yaml'} names {type(data).__name__}, which has no episodes of fields")
    return data
