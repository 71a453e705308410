"""Graph measurements of the heads of a model on one example."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from fna_lightning.analysis.report import MEAN_HEAD, CrossHead, HeadReport, HeadSummary, ModelReport
from fna_lightning.graph import (
    align,
    diffusion_map,
    effective_neighbors,
    laplacian_spectrum,
    measure,
    path_lengths,
    path_parents,
    spectrum,
)
from fna_lightning.introspection.maps import AttentionMap, layer_rollout

AnyHead = TypeVar("AnyHead", HeadReport, CrossHead, HeadSummary)


def head_reports(maps: dict[str, AttentionMap], stored: bool) -> list[HeadReport]:
    """Return every head of every layer, and the mean of each layer with several heads, for maps of one example.

    Args:
        maps: self-attention layers by module name, with a batch of one example.
        stored: whether spectra and tensors are computed and kept.
    """
    reports = []
    for layer, attention_map in maps.items():
        heads, matrices = _with_mean(attention_map.weights[0])
        values = measure(matrices)
        for place, head in enumerate(heads):
            measures = {name: value[place].item() for name, value in values.items()}
            report = HeadReport(layer, head, measures)
            reports.append(_with_matrices(report, matrices[place]) if stored else report)
    return reports


def cross_heads(maps: dict[str, AttentionMap], stored: bool) -> list[CrossHead]:
    """Return every head of layers whose queries and keys differ, and the mean of each layer with several heads."""
    reports = []
    for layer, attention_map in maps.items():
        heads, matrices = _with_mean(attention_map.weights[0])
        neighbors = effective_neighbors(matrices).mean(dim=-1)
        for place, head in enumerate(heads):
            weights = matrices[place].clone() if stored else None
            reports.append(CrossHead(layer, head, neighbors[place].item(), weights))
    return reports


def rolled_out(maps: dict[str, AttentionMap], stored: bool) -> Tensor | None:
    """Return the rollout over the layers, with heads averaged; None if it is not stored."""
    return layer_rollout(maps)[0].float() if stored and maps else None


def align_points(models: list[ModelReport]) -> list[ModelReport]:
    """Return the models with their diffusion maps of one example rotated onto those of the first model, by head."""
    reference = [head.points for head in models[0].heads]
    aligned = [models[0]]
    for model in models[1:]:
        # a model may have more heads than the first; those have no reference
        targets = [*reference, *[None] * len(model.heads)]
        heads = [
            head if head.points is None or target is None else replace(head, points=align(head.points, target))
            for head, target in zip(model.heads, targets, strict=False)
        ]
        aligned.append(replace(model, heads=heads))
    return aligned


def single_heads(heads: Sequence[AnyHead]) -> list[AnyHead]:
    """Return the heads without the means of layers."""
    return [head for head in heads if head.head != MEAN_HEAD]


def _with_mean(weights: Tensor) -> tuple[list[int], Tensor]:
    """Return the numbers of (H, n, m) heads and their float32 weights, followed by their mean if there are several."""
    weights = weights.detach().float().cpu()
    heads = list(range(len(weights)))
    if len(heads) == 1:
        return heads, weights
    return [*heads, MEAN_HEAD], torch.cat([weights, weights.mean(dim=0, keepdim=True)])


def _with_matrices(report: HeadReport, weights: Tensor) -> HeadReport:
    return replace(
        report,
        spectrum=spectrum(weights).abs().tolist(),
        laplacian=laplacian_spectrum(weights).tolist(),
        weights=weights.clone(),
        parents=path_parents(weights),
        hops=path_lengths(weights).hops,
        points=_diffusion_points(weights),
    )


def _diffusion_points(weights: Tensor) -> Tensor | None:
    """Return two diffusion coordinates of each token; None if the matrix has no diffusion map."""
    if len(weights) < 3:
        return None
    try:
        return diffusion_map(weights, symmetrise=True).coordinates.float()
    except ValueError:
        return None
