"""Interactive figures of a report, as Plotly figures: the figures of the HTML page, for notebooks.

Example::

    from fna_lightning.analysis import figures, study

    report = study("best.ckpt", texts=["the plot was gripping"])
    figures.weights(report, example=0, head=1).show()

``layer`` is the module name of an attention layer, by default the first; ``head`` -1 is the mean over the heads.
"""

import base64
import math
from io import BytesIO
from typing import Any

import numpy as np
import plotly.graph_objects as go
import torch
from torch import Tensor

from fna_lightning.analysis import figure_styles as styles
from fna_lightning.analysis.report import MEAN_HEAD, CrossHead, ExampleReport, HeadReport, Report, Summary
from fna_lightning.errors import UsageError

# tokens of a diffusion map that are labeled: those farthest from the center
LABELED_POINTS = 8
# smallest distance between labeled tokens, in standard deviations
LABEL_DISTANCE = 0.35
_LENGTH_LABELS = {"mean_hops": "mean hops", "entropy": "entropy", "effective_neighbors": "effective neighbors"}


def grid(report: Report, example: int = 0, model: int = 0, measure: str = "spectral_gap") -> go.Figure:
    """Return the overview of all heads of a model, colored by a measure; near-uniform heads are marked by ≈."""
    models = report.example(example).models
    heads, values = models[model].heads, [head.measures[measure] for part in models for head in part.heads]
    layers, numbers = list(dict.fromkeys(head.layer for head in heads)), _numbers(heads)
    by_place = {(head.layer, head.head): head for head in heads}
    figure = styles.grid_figure()
    rows = [[by_place.get((layer, number)) for number in numbers] for layer in layers]
    figure.data[0].update(
        x=["mean" if number == MEAN_HEAD else str(number) for number in numbers],
        y=[styles.literal(report.models[model].layers[layer]) for layer in layers],
        z=[[None if head is None else head.measures[measure] for head in row] for row in rows],
        # one color scale for all models
        zmin=min(values),
        zmax=max(values),
        text=[["≈" if head is not None and head.near_uniform else "" for head in row] for row in rows],
    )
    figure.data[0].colorbar.title.text = measure.replace("_", " ")
    return figure


def weights(report: Report, example: int = 0, model: int = 0, layer: str | None = None, head: int = 0) -> go.Figure:
    """Return the attention matrix of a head, of self-attention or cross-attention."""
    shown = report.example(example)
    selected = _select(shown, model, layer, head)
    rows, columns = _tokens(shown, selected)
    titles = cross_titles(shown) if isinstance(selected, CrossHead) else ("from token", "to token")
    figure = styles.matrix_figure("weight", rows=titles[0], columns=titles[1])
    return _matrix(figure, rows, columns, _stored(selected.weights))


def lines(report: Report, example: int = 0, model: int = 0, layer: str | None = None, head: int = 0) -> go.Figure:
    """Return lines from each token (left) to the tokens it attends to (right); their opacity is the weight."""
    shown = report.example(example)
    selected = _select(shown, model, layer, head)
    rows, columns = _tokens(shown, selected)
    values = _stored(selected.weights)
    levels: list[tuple[list[Any], list[Any]]] = [([], []) for _ in styles.OPACITIES]
    # uniform weights have a quarter of the full opacity
    largest = max(float(values.max()), 4 / values.size(1))
    order = values.flatten().argsort(descending=True)[: styles.MAX_LINES].tolist()
    for place in order:
        i, j = divmod(place, values.size(1))
        strength = float(values[i, j]) / largest
        if strength > styles.OPACITIES[0] / 2:
            x, y = levels[min(int(strength * len(levels)), len(levels) - 1)]
            x.extend([0, 1, None])
            y.extend([i, j, None])
    figure = styles.lines_figure()
    for trace, (x, y) in zip(figure.data, levels, strict=False):
        trace.update(x=x, y=y)
    for trace, words in ((figure.data[-2], rows), (figure.data[-1], columns)):
        trace.update(
            x=[trace.x[0]] * len(words), y=list(range(len(words))), text=[styles.tick_label(word) for word in words]
        )
    longest = max(len(rows), len(columns))
    figure.update_yaxes(range=[longest - 0.5, -0.5])
    figure.update_layout(height=18 * longest + 20)
    return figure


def hops(report: Report, example: int = 0, model: int = 0, layer: str | None = None, head: int = 0) -> go.Figure:
    """Return the number of hops of the cheapest path between each pair of tokens."""
    shown = report.example(example)
    values = _stored(_self_head(shown, model, layer, head).hops).double()
    return _matrix(styles.hops_figure(), shown.words, shown.words, values.masked_fill(values < 0, torch.nan))


def rollout(report: Report, example: int = 0, model: int = 0) -> go.Figure:
    """Return attention rollout: the share of each input token in each output token, over all layers."""
    shown = report.example(example)
    return _matrix(styles.matrix_figure("share"), shown.words, shown.words, _stored(shown.models[model].rollout))


def diffusion_map(
    report: Report, example: int = 0, model: int = 0, layer: str | None = None, head: int = 0
) -> go.Figure:
    """Return the diffusion map of a head; tokens with similar attention lie close together."""
    shown = report.example(example)
    points = _stored(_self_head(shown, model, layer, head).points)
    words = [styles.literal(word) for word in shown.words]
    labeled = outliers(points)
    figure = styles.points_figure()
    figure.data[0].update(x=points[:, 0].tolist(), y=points[:, 1].tolist(), text=words)
    figure.data[0].marker.color = list(range(1, len(points) + 1))
    far = points[labeled]
    figure.data[1].update(x=far[:, 0].tolist(), y=far[:, 1].tolist(), text=[words[place] for place in labeled])
    return figure


def outliers(points: Tensor) -> list[int]:
    """Return the points of a diffusion map that are labeled: those farthest from the median, unless labels overlap."""
    scaled = (points - points.median(dim=0).values) / points.std(dim=0).clamp_min(1e-12)
    labeled: list[int] = []
    for place in scaled.norm(dim=1).argsort(descending=True).tolist():
        if len(labeled) == LABELED_POINTS:
            break
        if not labeled or (scaled[labeled] - scaled[place]).norm(dim=1).min() > LABEL_DISTANCE:
            labeled.append(place)
    return labeled


def spectrum(report: Report, example: int = 0, layer: str | None = None, head: int = 0) -> go.Figure:
    """Return the moduli of the eigenvalues of a head in every model; the spectral gap is 1 minus the second."""
    figure = styles.curves_figure("eigenvalue", "modulus", unit_interval=True)
    return _head_curves(figure, report, example, layer, head, "spectrum")


def laplacian(report: Report, example: int = 0, layer: str | None = None, head: int = 0) -> go.Figure:
    """Return the eigenvalues of the normalized Laplacian of the symmetrized graph, in every model."""
    figure = styles.curves_figure("eigenvalue", "value")
    return _head_curves(figure, report, example, layer, head, "laplacian")


def ablation(report: Report, kind: str = "edges") -> go.Figure:
    """Return accuracy, or probability without labels, against the share of removed "edges" or "nodes".

    The bands are 95 % intervals.
    """
    curves = [getattr(part, kind) for part in report.ablation]
    score = "accuracy" if all(part.accuracy is not None for part in curves) else "probability"
    label = score if score == "accuracy" else "probability of the intact prediction"
    figure = styles.curves_figure(f"probability of removal, {kind}", label, unit_interval=True)
    for info, color, part, values in zip(report.models, _colors(report), report.ablation, curves, strict=True):
        figure.add_trace(styles.band(color, part.p, getattr(values, f"{score}_low"), getattr(values, f"{score}_high")))
        figure.add_trace(styles.curve(info.label, color, part.p, getattr(values, score)))
    return figure.update_layout(showlegend=len(report.models) > 1)


def lengths(report: Report, measure: str = "mean_hops") -> go.Figure:
    """Return "mean_hops", "entropy" or "effective_neighbors" against sequence length; bands: standard deviation."""
    unit = "context points" if report.kind == "field" else "tokens"
    figure = styles.curves_figure(unit, _LENGTH_LABELS[measure])
    for info, color, part in zip(report.models, _colors(report), report.lengths, strict=True):
        values: list[tuple[int, Summary]] = [
            (length, value)
            for length, value in zip(part.lengths, getattr(part, measure), strict=True)
            if value is not None
        ]
        x, mean = [length for length, _ in values], [value.mean for _, value in values]
        largest = 1.0 if measure == "entropy" else math.inf
        low = [max(value.mean - value.std, 0.0) for _, value in values]
        high = [min(value.mean + value.std, largest) for _, value in values]
        figure.add_trace(styles.band(color, x, low, high))
        figure.add_trace(styles.curve(info.label, color, x, mean))
    return figure.update_layout(showlegend=len(report.models) > 1)


def overlay(
    report: Report,
    example: int = 0,
    model: int = 0,
    layer: str | None = None,
    head: int = 0,
    *,
    patch: int | None = None,
    value: str = "weights",
) -> go.Figure:
    """Return the "weights" or "hops" from a patch to all patches over the image; the mean of all patches if None.

    ``patch`` is a token number; a class token, if there is one, is token 0.
    """
    shown = report.example(example)
    if shown.pixels is None:
        raise UsageError(f"example {example} is not an image")
    selected = _self_head(shown, model, layer, head)
    matrix = _stored(selected.weights if value == "weights" else selected.hops).double()
    side = int(len(matrix) ** 0.5)
    first = len(matrix) - side * side
    matrix = matrix.masked_fill(matrix < 0, torch.nan)[:, first:]
    row = matrix[first:].nanmean(dim=0) if patch is None else matrix[patch]
    figure = styles.overlay_figure("weight" if value == "weights" else "hops")
    _color(figure.data[0], row.view(side, side))
    figure.add_layout_image(source=image_url(shown.pixels), sizex=side, sizey=side, **styles.IMAGE)
    return figure


def field_map(
    report: Report, example: int = 0, model: int = 0, layer: str | None = None, head: int = 0, *, query: int = 0
) -> go.Figure:
    """Return the points of a field, colored by their weight for one query."""
    shown = report.example(example)
    if shown.coordinates is None or shown.query_coordinates is None:
        raise UsageError(f"example {example} has no coordinates")
    values = _stored(_select(shown, model, layer, head).weights)[query]
    figure = styles.field_figure()
    x, y = shown.coordinates.T.tolist()
    figure.data[0].update(x=x, y=y, text=[styles.literal(word) for word in shown.words])
    figure.data[0].marker.color = values.tolist()
    x, y = shown.query_coordinates.T.tolist()
    sizes = [16 if place == query else 7 for place in range(len(x))]
    figure.data[1].update(x=x, y=y, text=[f"query {place + 1}" for place in range(len(x))])
    figure.data[1].marker.size = sizes
    return figure


def image_url(pixels: Tensor) -> str:
    """Return a (C, S, S) uint8 image as the data URL of a PNG, which needs no network."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def cross_tokens(example: ExampleReport) -> tuple[list[str], list[str]]:
    """Return the tokens of the rows and of the columns of cross-attention."""
    if example.query_coordinates is not None:
        return [f"query {place + 1}" for place in range(len(example.query_coordinates))], example.words
    return example.target_words or example.words, example.source_words or example.words


def cross_titles(example: ExampleReport) -> tuple[str, str]:
    """Return the titles of the rows and of the columns of cross-attention."""
    return ("target token", "source token") if example.source_words else ("query", "context point")


def _tokens(example: ExampleReport, head: HeadReport | CrossHead) -> tuple[list[str], list[str]]:
    return cross_tokens(example) if isinstance(head, CrossHead) else (example.words, example.words)


def _select(example: ExampleReport, model: int, layer: str | None, head: int) -> HeadReport | CrossHead:
    heads: list[HeadReport | CrossHead] = [*example.models[model].heads, *example.models[model].cross]
    if layer is None and heads:
        layer = heads[0].layer
    for candidate in heads:
        if (candidate.layer, candidate.head) == (layer, head):
            return candidate
    names = ", ".join(dict.fromkeys(candidate.layer for candidate in heads))
    raise UsageError(f"there is no head {head} in layer {layer!r}; the layers are {names}")


def _self_head(example: ExampleReport, model: int, layer: str | None, head: int) -> HeadReport:
    selected = _select(example, model, layer, head)
    if isinstance(selected, CrossHead):
        raise UsageError(f"{layer!r} is cross-attention, which has no graph on one set of tokens; choose another layer")
    return selected


def _stored(values: Tensor | None) -> Tensor:
    if values is None:
        raise UsageError(
            "the matrices of this example are not stored; pass the example itself to study(), or a larger depth"
        )
    return values


def _matrix(figure: go.Figure, rows: list[str], columns: list[str], values: Tensor) -> go.Figure:
    places = {"x": [str(j) for j in range(len(columns))], "y": [str(i) for i in range(len(rows))]}
    figure.data[0].update(places)
    _color(figure.data[0], values)
    figure.update_xaxes(labelalias={str(place): styles.tick_label(word) for place, word in enumerate(columns)})
    figure.update_yaxes(labelalias={str(place): styles.tick_label(word) for place, word in enumerate(rows)})
    return figure


def _color(trace: go.Heatmap, values: Tensor) -> None:
    """Set the cells of a heat map and the end of its color scale, which starts at 0."""
    cells = values.double().numpy()
    trace.update(z=cells, zmax=float(np.nanmax(cells)))
    if trace.colorbar.dtick:
        trace.colorbar.dtick = math.ceil(trace.zmax / 6)


def _head_curves(
    figure: go.Figure, report: Report, example: int, layer: str | None, head: int, field: str
) -> go.Figure:
    for number, (info, color) in enumerate(zip(report.models, _colors(report), strict=True)):
        values = getattr(_self_head(report.example(example), number, layer, head), field)
        figure.add_trace(styles.curve(info.label, color, list(range(1, len(values) + 1)), values))
    return figure


def _numbers(heads: list[HeadReport]) -> list[int]:
    """Return the numbers of the heads in order, the mean last."""
    return sorted({head.head for head in heads}, key=lambda number: (number == MEAN_HEAD, number))


def _colors(report: Report) -> list[str]:
    return [styles.COLORS[number % len(styles.COLORS)] for number in range(len(report.models))]
