"""Graph measurements of studied models: heads, means over a split, ablation, path length by sequence length."""

import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from fna_lightning.analysis.models import Example, StudiedModel
from fna_lightning.analysis.report import (
    AblationCurve,
    AblationReport,
    GrowthReport,
    HeadReport,
    HeadSummary,
    ModelReport,
    Summary,
)
from fna_lightning.graph import align, diffusion_map, measure, path_lengths, path_parents, spectrum
from fna_lightning.graph.ablation import KINDS
from fna_lightning.introspection.ablation import ablated
from fna_lightning.introspection.maps import AttentionMap

PROBABILITIES = tuple(step / 10 for step in range(11))
# number of texts whose paths are measured at each length
TEXTS_PER_LENGTH = 4

Tick = Callable[[], None]


def no_tick() -> None:
    """Report no progress."""


def head_reports(maps: dict[str, AttentionMap]) -> list[HeadReport]:
    """Return every head of every layer, for maps of one example."""
    heads = []
    for layer, attention_map in maps.items():
        values = measure(attention_map.weights, attention_map.lengths)
        for head in range(attention_map.weights.size(1)):
            weights = attention_map.weights[0, head].double()
            heads.append(
                HeadReport(
                    layer=layer,
                    head=head,
                    measures={name: value[0, head].item() for name, value in values.items()},
                    spectrum=spectrum(weights).abs().tolist(),
                    weights=weights,
                    parents=path_parents(weights),
                    hops=path_lengths(weights).hops,
                    points=_diffusion_points(weights),
                )
            )
    return heads


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


def _diffusion_points(weights: Tensor) -> Tensor | None:
    """Return two diffusion coordinates of each token; None if the matrix has no diffusion map."""
    if len(weights) < 3:
        return None
    try:
        return diffusion_map(weights, symmetrise=True).coordinates
    except ValueError:
        return None


def split_summary(model: StudiedModel, examples: Sequence[Example], tick: Tick = no_tick) -> list[HeadSummary]:
    """Return mean and standard deviation of every measure of every head over many examples."""
    collected: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for example in examples:
        for layer, attention_map in model.maps(example.input).items():
            for name, values in measure(attention_map.weights, attention_map.lengths).items():
                for head, value in enumerate(values[0].tolist()):
                    if math.isfinite(value):
                        collected[layer, head][name].append(value)
        tick()
    return [
        HeadSummary(layer, head, {name: _summary(values) for name, values in measures.items()})
        for (layer, head), measures in collected.items()
    ]


def _summary(values: list[float]) -> Summary:
    column = torch.tensor(values, dtype=torch.float64)
    return Summary(column.mean().item(), column.std(unbiased=False).item(), len(values))


def ablation_report(
    model: StudiedModel, examples: Sequence[Example], seed: int, tick: Tick = no_tick
) -> AblationReport:
    """Return the scores of a model whose edges or nodes are removed with each probability.

    Every model and every probability starts from the same seed.
    """
    score = model.scorer(list(examples))
    curves = {}
    for kind in KINDS:
        probability: list[float] = []
        accuracy: list[float] = []
        for p in PROBABILITIES:
            with ablated(model.task, p, kind, torch.Generator().manual_seed(seed)):
                kept, correct = score()
            probability.append(kept)
            if correct is not None:
                accuracy.append(correct)
            tick()
        curves[kind] = AblationCurve(probability, accuracy or None)
    return AblationReport(list(PROBABILITIES), **curves)


def growth_lengths(examples: Sequence[Example], max_length: int) -> list[int]:
    """Return the sequence lengths at which paths are measured: 50, 100, ..., or fifths of a shorter limit."""
    longest = min(max_length, max(len(example.input) for example in examples))
    step = 50 if longest >= 250 else max(1, longest // 5)
    return list(range(step, longest + 1, step))


def growth_report(
    model: StudiedModel, examples: Sequence[Example], lengths: list[int], tick: Tick = no_tick
) -> GrowthReport:
    """Return the mean hops, over all heads, of texts truncated to each length."""
    means: list[float | None] = []
    for length in lengths:
        long_enough = [example for example in examples if len(example.input) >= length][:TEXTS_PER_LENGTH]
        values = [
            path_lengths(attention_map.weights, attention_map.lengths).mean
            for example in long_enough
            for attention_map in model.maps(example.input[:length]).values()
        ]
        finite = torch.cat([value.flatten() for value in values])
        finite = finite[finite.isfinite()]
        means.append(finite.mean().item() if len(finite) else None)
        tick()
    return GrowthReport(lengths, means)
