"""Studied field models: weights of queries on points, and the effective number of neighbors by number of points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from fna_lightning.analysis.heads import cross_heads
from fna_lightning.analysis.measurements import Tick, summary
from fna_lightning.analysis.models import Example, ModelInput, Scorer, StudiedModel, UserInputs, View
from fna_lightning.analysis.report import ExampleReport, HeadSummary, LengthReport, ModelReport, SplitReport, Summary
from fna_lightning.errors import UsageError
from fna_lightning.graph import effective_neighbors
from fna_lightning.introspection.maps import AttentionMap
from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeStream, FieldBatch
from fna_lightning.tasks.fields.table import PointTable, read_points
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.tasks.fields.weights import query_weights

# name of a measure of a field model in an evaluation set, such as "neighbors_n64"
PREFIX = "neighbors_"
# number of queries for the user's own points
QUERIES = 64


class FieldModel(StudiedModel):
    """A trained field model; the input of an example is a ``FieldBatch`` of one episode."""

    task: FieldRegression
    codec: FieldCodec
    kind: ClassVar[str] = "field"
    unit: ClassVar[str] = "fields"
    argument: ClassVar[str] = "points"
    option: ClassVar[str] = ""
    truncatable: ClassVar[bool] = False

    @property
    def comparable_key(self) -> object:
        return self.codec

    @property
    def way_out(self) -> str:
        return "pass points=... in Python, or use --split"

    def maps(self, model_input: ModelInput) -> dict[str, AttentionMap]:
        """Return the weights of the queries on the context points in every layer."""
        layers: dict[str, list[Tensor]] = {}
        for (layer, _), weights in query_weights(self.task, model_input).items():
            layers.setdefault(layer, []).append(weights)
        maps = {name: AttentionMap(torch.stack(heads, dim=1), None, False) for name, heads in layers.items()}
        self.check_finite(maps)
        return maps

    def examples(self, inputs: UserInputs, max_length: int) -> list[Example]:
        if inputs.points is None:
            return []
        table = self._table(inputs.points)
        box = np.random.default_rng(0).uniform(-1.0, 1.0, (QUERIES, table.coordinates.shape[1]))
        context = torch.from_numpy(table.scaled_coordinates())[None]
        batch = FieldBatch(
            context,
            torch.from_numpy(table.scaled_values())[None, :, None],
            torch.from_numpy(box.astype(np.float32))[None],
            torch.zeros(1, QUERIES, 1),
            torch.tensor([len(table)]),
            torch.tensor([-1]),
            False,
        )
        return [self.episode(f"{len(table)} points", batch)]

    def _table(self, points: Any) -> PointTable:
        """Return the user's points: a CSV file, or rows of coordinates and a value."""
        if isinstance(points, str | Path):
            return read_points(points, self.codec.coordinates, self.codec.values[0])
        rows = np.asarray(points, dtype=np.float64)
        names = [*self.codec.coordinates, *self.codec.values]
        if rows.ndim != 2 or rows.shape[1] != len(names) or len(rows) < 2 or len(self.codec.values) != 1:
            raise UsageError(
                f"points must be at least two rows of {', '.join(names)}, got the shape {rows.shape}; pass a "
                f"(n, {len(names)}) tensor or a CSV file"
            )
        flat = [name for name, column in zip(names, rows.T, strict=True) if np.ptp(column) == 0.0]
        if flat or not np.isfinite(rows).all():
            reason = f"{flat[0]} is the same for all of them" if flat else "some are not finite"
            raise UsageError(f"the field cannot be predicted from these points: {reason}; pass other points")
        return PointTable(rows[:, :-1], rows[:, -1], names)

    def episode(self, title: str, batch: FieldBatch) -> Example:
        """Return an episode as an example, with its queries ordered from dense to sparse surroundings."""
        context, queries = batch.context_x[0], batch.query_x[0]
        nearest = torch.cdist(queries, context).sort(dim=1).values[:, : min(4, len(context))].mean(dim=1)
        order = nearest.argsort()
        batch = batch._replace(query_x=batch.query_x[:, order], query_y=batch.query_y[:, order])
        words = [", ".join(f"{value:.2f}" for value in point) for point in context.tolist()]
        return Example(title, batch, words)

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        return self.episode(title, item)

    def split_examples(self, split: str, count: int, max_length: int) -> list[Example]:
        """Return the first episode of each evaluation set."""
        data, stream = self.episodes(split)
        return [
            self.episode(f"{split} {name}", stream.__getitems__([number * stream.size]))
            for number, name in enumerate(data.eval_sets)
        ]

    def episodes(self, split: str) -> tuple[FieldData, EpisodeStream]:
        """Return the data module of the run, and the episodes of one of its splits."""
        if split == "train":
            raise UsageError("training episodes have no fixed number of points; use --split val or --split test")
        data = self.data()
        if not isinstance(data, FieldData):
            raise UsageError(f"{self.path} was trained with {type(data).__name__}, which has no episodes of fields")
        return data, data.split(split)

    def views(self, example: Example) -> list[View]:
        places = {}
        if example.input.context_x.size(-1) == 2:
            places = {"coordinates": example.input.context_x[0], "query_coordinates": example.input.query_x[0]}
        return [View(example.title, example.words, lambda model, stored: model.report(example, stored), None, places)]

    def report(self, example: Example, stored: bool) -> ModelReport:
        """Return the heads of this model on one episode."""
        return ModelReport("", float("nan"), None, {}, [], cross_heads(self.maps(example.input), stored))

    def scorer(self, examples: list[Example]) -> Scorer | None:
        return None


def neighbor_summary(models: Sequence[FieldModel], split: str, count: int, tick: Tick) -> SplitReport:
    """Return the effective number of neighbors of every head, by evaluation set, over its first ``count`` episodes."""
    data, stream = models[0].episodes(split)
    count = min(count, stream.size)
    reports: list[list[HeadSummary]] = []
    for model in models:
        sets: dict[tuple[str, int], dict[str, Summary]] = {}
        for number, name in enumerate(data.eval_sets):
            batch = stream.__getitems__([number * stream.size + index for index in range(count)])
            for key, weights in query_weights(model.task, batch).items():
                part = summary(effective_neighbors(weights).flatten().tolist())
                if part:
                    sets.setdefault(key, {})[PREFIX + name] = part
            tick()
        reports.append([HeadSummary(layer, head, values) for (layer, head), values in sets.items()])
    return SplitReport(split, count, reports)


def neighbor_curve(head: HeadSummary) -> dict[int, Summary]:
    """Return the number of neighbors by number of points, for the survey of training."""
    sizes = {name.removeprefix(f"{PREFIX}n"): value for name, value in head.measures.items()}
    return {int(size): value for size, value in sizes.items() if size.isdigit()}


def field_lengths(heads: Sequence[HeadSummary]) -> LengthReport:
    """Return the number of neighbors of one model by number of points, over all heads."""
    curves = [neighbor_curve(head) for head in heads]
    sizes = sorted(curves[0]) if curves else []
    nothing: list[Summary | None] = [None] * len(sizes)
    return LengthReport(sizes, nothing, nothing, [_pooled([curve[size] for curve in curves]) for size in sizes])


def middle_episode(examples: Sequence[ExampleReport]) -> ExampleReport | None:
    """Return the first stored episode with the median number of points; None unless points have two coordinates."""
    stored = [example for example in examples if example.stored and example.coordinates is not None]
    sizes = sorted({len(example.words) for example in stored})
    return next((example for example in stored if len(example.words) == sizes[len(sizes) // 2]), None)


def _pooled(parts: Sequence[Summary]) -> Summary:
    """Return the summary of all values, from the summaries of groups of the same size."""
    means = torch.tensor([part.mean for part in parts], dtype=torch.float64)
    squares = torch.tensor([part.std**2 + part.mean**2 for part in parts], dtype=torch.float64)
    variance = (squares.mean() - means.mean() ** 2).clamp(min=0.0)
    return Summary(means.mean().item(), variance.sqrt().item(), sum(part.count for part in parts))
