"""The figures of a report on field models: neighbors by number of points, and weights over the map."""

from collections.abc import Sequence

import numpy as np
import torch
from matplotlib.figure import Figure
from numpy.typing import NDArray

from fna_lightning.analysis.fields import middle_episode, neighbor_curve
from fna_lightning.analysis.heads import single_heads
from fna_lightning.analysis.report import CrossHead, ExampleReport, HeadSummary, Report
from fna_lightning.plotting.fields import WeightPanel, curve_figure, weights_figure

# queries of an episode whose weights are drawn, and most heads of a single model
DRAWN_QUERIES, DRAWN_HEADS = 3, 4


def field_figures(report: Report) -> dict[str, Figure]:
    """Return the figures by file name."""
    figures = {} if report.split is None else {"neighbors": _neighbor_figure(report, report.split.models)}
    episode = middle_episode(report.examples)
    return figures if episode is None else figures | {"weights": _weights_figure(report, episode)}


def head_name(head: HeadSummary | CrossHead, report: Report, model: int) -> str:
    """Return a short readable name of a head of the model with this number."""
    layers = report.models[model].layers
    return f"head {head.head}" if len(layers) == 1 else f"{layers[head.layer]} head {head.head}"


def _neighbor_figure(report: Report, models: Sequence[Sequence[HeadSummary]]) -> Figure:
    curves: dict[str, dict[int, float]] = {}
    for number, heads in enumerate(models):
        prefix = f"{report.models[number].label}, " if len(models) > 1 else ""
        # of several models, the head with the fewest neighbors at the largest number of points
        shown = heads if len(models) == 1 else [min(heads, key=lambda head: list(_curve(head).values())[-1])]
        for head in shown:
            curves[prefix + head_name(head, report, number)] = _curve(head)
    return curve_figure(curves, "effective number of neighbors")


def _curve(head: HeadSummary) -> dict[int, float]:
    return {size: value.mean for size, value in neighbor_curve(head).items()}


def _weights_figure(report: Report, episode: ExampleReport) -> Figure:
    """Return the weights of the first heads of one model, or of the narrowest head of each of several models."""
    assert episode.coordinates is not None
    assert episode.query_coordinates is not None
    count = len(episode.query_coordinates)
    queries = torch.linspace(0, count - 1, min(DRAWN_QUERIES, count)).long()
    columns: dict[str, NDArray[np.floating]] = {}
    for number, model in enumerate(episode.models):
        heads = single_heads(model.cross)
        if len(episode.models) == 1:
            for head in heads[:DRAWN_HEADS]:
                columns[head_name(head, report, number)] = _rows(head, queries)
        else:
            narrow = min(heads, key=lambda head: head.neighbors)
            columns[f"{report.models[number].label}\n{head_name(narrow, report, number)}"] = _rows(narrow, queries)
    rows = [
        [WeightPanel(title, query, values[place]) for title, values in columns.items()]
        for place, query in enumerate(episode.query_coordinates[queries].numpy())
    ]
    return weights_figure(episode.coordinates.numpy(), rows)


def _rows(head: CrossHead, queries: torch.Tensor) -> NDArray[np.floating]:
    assert head.weights is not None
    return head.weights[queries].numpy()
