"""Graph measures of trained text models, averaged over texts."""

import math
from collections import defaultdict
from collections.abc import Sequence

import torch

from fna_lightning.analysis.models import Example, StudiedModel
from fna_lightning.graph import measure


def graph_means(model: StudiedModel, examples: Sequence[Example], names: Sequence[str]) -> dict[str, float]:
    """Return the mean of each measure over texts, layers and heads; NaN if it is not finite for any text."""
    collected: dict[str, list[float]] = defaultdict(list)
    for example in examples:
        for layer in model.maps(example.input).values():
            for name, values in measure(layer.weights, layer.lengths, names).items():
                collected[name] += [value for value in values.flatten().tolist() if math.isfinite(value)]
    return {name: sum(collected[name]) / len(collected[name]) if collected[name] else math.nan for name in names}


def median_weight(model: StudiedModel, examples: Sequence[Example]) -> float:
    """Return the median over texts of n times the median weight between two different tokens: 1 if uniform."""
    medians = []
    for example in examples:
        for layer in model.maps(example.input).values():
            n = layer.weights.size(-1)
            if n > 1:
                off_diagonal = layer.weights[0, 0][~torch.eye(n, dtype=torch.bool)]
                medians.append(n * off_diagonal.median().item())
    return sorted(medians)[len(medians) // 2] if medians else math.nan


def longest(examples: Sequence[Example]) -> Example:
    """Return the longest text."""
    return max(examples, key=lambda example: len(example.input))
