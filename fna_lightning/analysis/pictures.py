"""The figures of a report as PNG files."""

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fna_lightning.analysis.field_pictures import field_figures
from fna_lightning.analysis.report import MEAN_HEAD, CrossHead, HeadReport, Report, Summary
from fna_lightning.graph.ablation import KINDS
from fna_lightning.plotting.graphs import alignment_figure, draw_hops, draw_points, draw_spectrum
from fna_lightning.plotting.images import picture_figure
from fna_lightning.plotting.style import COLORS, styled
from fna_lightning.utils.files import write_figure

# the measures that are drawn against the number of tokens, and their labels
LENGTH_MEASURES = {
    "mean_hops": "mean hops",
    "entropy": "entropy / log n",
    "effective_neighbors": "effective number of neighbors",
}


@styled()
def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write the figures of the first example's first head in every model, and the curves; return the files."""
    if report.kind == "field":
        figures = field_figures(report)
    else:
        figures = _head_figures(report) | _ablation(report) | _lengths(report) | _image_figures(report)
        figures |= _cross_attention(report)
    written = []
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        # tight: long words at the left of a figure of cross-attention would be cut off otherwise
        options = {"bbox_inches": "tight"} if name.startswith("cross_attention") else {}
        write_figure(path, figure, dpi=130, **options)
        written.append(path)
    return written


def _head_figures(report: Report) -> dict[str, Figure]:
    stored = next((example for example in report.examples if example.stored), None)
    if stored is None:
        return {}
    labels = [model.label for model in report.models]
    heads = [model.heads[0] for model in stored.models]
    spectrum, axes = _row(1)
    for label, head, color in zip(labels, heads, _colors(report), strict=True):
        draw_spectrum(axes[0], torch.tensor(head.spectrum), label=label, color=color)
    axes[0].legend()
    hops, axes = _row(len(heads))
    for panel, label, head in zip(axes, labels, heads, strict=True):
        assert head.hops is not None
        draw_hops(panel, head.hops)
        panel.set_title(label)
    maps, axes = _row(len(heads))
    for panel, label, head in zip(axes, labels, heads, strict=True):
        panel.set_title(label if head.points is not None else f"{label}: no diffusion map")
        if head.points is not None:
            draw_points(panel, head.points)
    return {"spectrum": spectrum, "hops": hops, "diffusion_map": maps}


def _ablation(report: Report) -> dict[str, Figure]:
    """Return the figure of the scores under ablation with their intervals."""
    if not report.ablation:
        return {}
    figure, axes = _row(2)
    score = "accuracy" if all(curves.edges.accuracy for curves in report.ablation) else "probability"
    for panel, kind in zip(axes, KINDS, strict=True):
        for model, color, curves in zip(report.models, _colors(report), report.ablation, strict=True):
            curve = getattr(curves, kind)
            values, low, high = (getattr(curve, score + end) for end in ("", "_low", "_high"))
            panel.plot(curves.p, values, "o-", markersize=4, color=color, label=model.label)
            panel.fill_between(curves.p, low, high, color=color, alpha=0.15, linewidth=0)
        panel.set(xlabel=f"probability of removal, {kind}", ylabel=score, ylim=(-0.02, 1.05))
        panel.grid(alpha=0.3)
    axes[0].legend()
    return {"ablation": figure}


def _lengths(report: Report) -> dict[str, Figure]:
    """Return the figure of the measures against the number of tokens."""
    if not any(lengths.lengths for lengths in report.lengths):
        return {}
    figure, axes = _row(len(LENGTH_MEASURES))
    for panel, (measure, label) in zip(axes, LENGTH_MEASURES.items(), strict=True):
        for model, color, lengths in zip(report.models, _colors(report), report.lengths, strict=True):
            means = _means(getattr(lengths, measure))
            panel.plot(lengths.lengths, means, "o-", markersize=4, color=color, label=model.label)
        panel.set(xlabel="tokens", ylabel=label)
        panel.grid(alpha=0.3)
    axes[0].legend()
    return {"lengths": figure}


def _means(summaries: Sequence[Summary | None]) -> list[float]:
    return [math.nan if part is None else part.mean for part in summaries]


def _image_figures(report: Report) -> dict[str, Figure]:
    """Return a figure of attention over each stored image."""
    labels = [model.label for model in report.models]
    figures = {}
    for number, example in enumerate(report.examples, start=1):
        if example.pixels is not None:
            layers = [_mean_weights(model.heads) for model in example.models]
            figures[f"over_image_{number}"] = picture_figure(example.pixels, dict(zip(labels, layers, strict=True)))
    return figures


def _cross_attention(report: Report) -> dict[str, Figure]:
    """Return the cross-attention of the first stored translation in every model, with heads averaged."""
    example = next((example for example in report.examples if example.stored and example.source_words), None)
    if example is None:
        return {}
    figures = {}
    for number, model in enumerate(example.models, start=1):
        name = "cross_attention" if number == 1 else f"cross_attention_{number}"
        weights = list(_mean_weights(model.cross).values())
        figures[name] = alignment_figure(weights, example.source_words or [], example.target_words or [])
    return figures


def _mean_weights(heads: Sequence[HeadReport] | Sequence[CrossHead]) -> dict[str, Tensor]:
    """Return the weights of each layer, averaged over heads."""
    layers: dict[str, list[Tensor]] = defaultdict(list)
    for head in heads:
        if head.head != MEAN_HEAD and head.weights is not None:
            layers[head.layer].append(head.weights)
    return {name: torch.stack(weights).mean(dim=0) for name, weights in layers.items()}


def _row(count: int) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(4.6 * count, 3.7), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def _colors(report: Report) -> list[str]:
    return [COLORS[number % len(COLORS)] for number in range(len(report.models))]
