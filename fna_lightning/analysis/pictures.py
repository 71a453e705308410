"""The figures of a report as PNG files."""

import math
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fna_lightning.analysis.report import HeadReport, Report
from fna_lightning.graph.ablation import KINDS
from fna_lightning.plotting.graphs import draw_hops, draw_points, draw_spectrum
from fna_lightning.plotting.images import picture_figure
from fna_lightning.plotting.style import COLORS
from fna_lightning.utils.files import write_bytes, write_figure


def write_pictures(report: Report, folder: Path) -> list[Path]:
    """Write the figures of the first example's first head in every model, and the curves; return the files."""
    figures = {**_head_figures(report), **_curves(report), **_image_figures(report)}
    written = _write_cross_attention(report, folder)
    for name, figure in figures.items():
        path = folder / f"{name}.png"
        write_figure(path, figure, dpi=130)
        written.append(path)
    return written


def _head_figures(report: Report) -> dict[str, Figure]:
    labels = [model.label for model in report.models]
    heads = [model.heads[0] for model in report.examples[0].models]
    spectrum, axes = _row(1)
    for label, head, color in zip(labels, heads, _colors(report), strict=True):
        draw_spectrum(axes[0], torch.tensor(head.spectrum), label=label, color=color)
    axes[0].legend()
    hops, axes = _row(len(heads))
    for panel, label, head in zip(axes, labels, heads, strict=True):
        draw_hops(panel, head.hops)
        panel.set_title(label)
    maps, axes = _row(len(heads))
    for panel, label, head in zip(axes, labels, heads, strict=True):
        panel.set_title(label if head.points is not None else f"{label}: no diffusion map")
        if head.points is not None:
            draw_points(panel, head.points)
    return {"spectrum": spectrum, "hops": hops, "diffusion_map": maps}


def _curves(report: Report) -> dict[str, Figure]:
    models = list(zip(report.models, _colors(report), report.ablation, report.growth, strict=True))
    ablation, axes = _row(2)
    has_accuracy = all(curves.edges.accuracy for curves in report.ablation)
    score = "accuracy" if has_accuracy else "probability"
    for panel, kind in zip(axes, KINDS, strict=True):
        for model, color, curves, _ in models:
            values = getattr(getattr(curves, kind), score)
            panel.plot(curves.p, values, "o-", markersize=4, color=color, label=model.label)
        panel.set(xlabel=f"probability of removal, {kind}", ylabel=score, ylim=(-0.02, 1.05))
        panel.grid(alpha=0.3)
    axes[0].legend()
    if not any(growth.lengths for growth in report.growth):
        return {"ablation": ablation}
    path_length, axes = _row(1)
    for model, color, _, growth in models:
        hops = [math.nan if value is None else value for value in growth.mean_hops]
        axes[0].plot(growth.lengths, hops, "o-", markersize=4, color=color, label=model.label)
    axes[0].set(xlabel="tokens", ylabel="mean hops")
    axes[0].grid(alpha=0.3)
    axes[0].legend()
    return {"ablation": ablation, "path_length": path_length}


def _image_figures(report: Report) -> dict[str, Figure]:
    """Return a figure of attention over each image."""
    labels = [model.label for model in report.models]
    figures = {}
    for number, example in enumerate(report.examples, start=1):
        if example.pixels is not None:
            layers = [_mean_weights(model.heads) for model in example.models]
            figures[f"over_image_{number}"] = picture_figure(example.pixels, dict(zip(labels, layers, strict=True)))
    return figures


def _write_cross_attention(report: Report, folder: Path) -> list[Path]:
    """Write the cross-attention of the first translation in every model, for translation models."""
    translations = [example.models for example in report.examples if example.models[0].cross_attention is not None]
    written = []
    for number, model in enumerate(translations[0] if translations else [], start=1):
        assert model.cross_attention is not None
        path = folder / ("cross_attention.png" if number == 1 else f"cross_attention_{number}.png")
        write_bytes(path, model.cross_attention)
        written.append(path)
    return written


def _mean_weights(heads: list[HeadReport]) -> dict[str, Tensor]:
    """Return the weights of each layer, averaged over heads."""
    layers: dict[str, list[Tensor]] = defaultdict(list)
    for head in heads:
        layers[head.layer].append(head.weights)
    return {name: torch.stack(weights).mean(dim=0) for name, weights in layers.items()}


def _row(count: int) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(4.6 * count, 3.7), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def _colors(report: Report) -> list[str]:
    return [COLORS[number % len(COLORS)] for number in range(len(report.models))]
