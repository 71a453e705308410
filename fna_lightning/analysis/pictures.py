"""The figures of a report as PNG files."""

import base64
from collections import defaultdict
from pathlib import Path
from typing import Any

import torch
from matplotlib.figure import Figure
from torch import Tensor

from fna_lightning.plotting.graphs import COLOURS, draw_hops, draw_points, draw_spectrum
from fna_lightning.plotting.images import picture_figure
from fna_lightning.utils.files import write_bytes, write_figure


def write_pictures(report: dict[str, Any], folder: Path) -> list[Path]:
    """Draw the first text's first head in every model, and the curves; return the files."""
    labels = [model["label"] for model in report["models"]]
    heads = [one["heads"][0] for one in report["examples"][0]["models"]]
    spectrum, axes = _row(1)
    for label, head, colour in zip(labels, heads, _colours(labels), strict=True):
        draw_spectrum(axes[0], torch.tensor(head["spectrum"]), label=label, colour=colour)
    axes[0].legend()
    hops, axes = _row(len(heads))
    for place, (label, head) in enumerate(zip(labels, heads, strict=True)):
        draw_hops(axes[place], head["hops"])
        axes[place].set_title(label)
    maps, axes = _row(len(heads))
    for place, (label, head) in enumerate(zip(labels, heads, strict=True)):
        axes[place].set_title(label if head["points"] is not None else f"{label}: no diffusion map")
        if head["points"] is not None:
            draw_points(axes[place], head["points"])
    pictures = {"spectrum": spectrum, "hops": hops, "diffusion_map": maps, **_curves(report, labels)}
    for number, example in enumerate(report["examples"], start=1):
        if "pixels" in example:
            layers = [_layers(model["heads"]) for model in example["models"]]
            pictures[f"over_image_{number}"] = picture_figure(example["pixels"], dict(zip(labels, layers, strict=True)))
    written = _looks(report, folder)
    for name, figure in pictures.items():
        write_figure(folder / f"{name}.png", figure, dpi=130)
        written.append(folder / f"{name}.png")
    return written


def _looks(report: dict[str, Any], folder: Path) -> list[Path]:
    """Write the cross-attention of the first translation in every model, if they are translators."""
    translations = [one["models"] for one in report["examples"] if "cross" in one["models"][0]]
    written = []
    for number, model in enumerate(translations[0] if translations else []):
        path = folder / ("cross_attention.png" if number == 0 else f"cross_attention_{number + 1}.png")
        write_bytes(path, base64.b64decode(model["cross"].partition(",")[2]))
        written.append(path)
    return written


def _curves(report: dict[str, Any], labels: list[str]) -> dict[str, Figure]:
    ablation, axes = _row(2)
    measured = "accuracy" if all(one["edges"]["accuracy"] for one in report["ablation"]) else "probability"
    for place, kind in enumerate(("edges", "nodes")):
        for label, curve, colour in zip(labels, report["ablation"], _colours(labels), strict=True):
            axes[place].plot(curve["p"], curve[kind][measured], "o-", markersize=4, color=colour, label=label)
        axes[place].set(xlabel=f"probability of removal, {kind}", ylabel=measured, ylim=(-0.02, 1.05))
        axes[place].grid(alpha=0.3)
    axes[0].legend()
    if not any(one["lengths"] for one in report["growth"]):
        return {"ablation": ablation}
    growth, axes = _row(1)
    for label, curve, colour in zip(labels, report["growth"], _colours(labels), strict=True):
        hops = [torch.nan if value is None else value for value in curve["mean_hops"]]
        axes[0].plot(curve["lengths"], hops, "o-", markersize=4, color=colour, label=label)
    axes[0].set(xlabel="tokens", ylabel="mean hops")
    axes[0].grid(alpha=0.3)
    axes[0].legend()
    return {"ablation": ablation, "path_length": growth}


def _layers(heads: list[dict[str, Any]]) -> dict[str, Tensor]:
    """Return the mean over heads of the weights of each layer."""
    layers: dict[str, list[Tensor]] = defaultdict(list)
    for head in heads:
        layers[head["layer"]].append(head["weights"])
    return {name: torch.stack(some).mean(dim=0) for name, some in layers.items()}


def _row(count: int) -> tuple[Figure, list[Any]]:
    figure = Figure(figsize=(4.6 * count, 3.7), layout="constrained")
    return figure, [figure.add_subplot(1, count, place + 1) for place in range(count)]


def _colours(labels: list[str]) -> list[str]:
    return [COLOURS[place % len(COLOURS)] for place in range(len(labels))]
