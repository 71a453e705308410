"""Measurements of a model over many examples: means over a split, ablation, measures against sequence length."""

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence

import torch
from scipy import stats
from torch import Tensor

from fna_lightning.analysis.models import Example, Scorer, Scores, StudiedModel
from fna_lightning.analysis.report import (
    AblationCurve,
    AblationReport,
    HeadSummary,
    LengthReport,
    ModelReport,
    Summary,
)
from fna_lightning.graph import measure
from fna_lightning.graph.ablation import KINDS
from fna_lightning.introspection.ablation import ablated
from fna_lightning.introspection.maps import attention_layers

PROBABILITIES = tuple(step / 10 for step in range(11))
# number of texts that are measured at each length
TEXTS_PER_LENGTH = 4
LENGTH_MEASURES = ("mean_hops", "entropy", "effective_neighbors")
CONFIDENCE = 0.95

Tick = Callable[[], None]


def no_tick() -> None:
    """Report no progress."""


def summary(values: Iterable[float]) -> Summary | None:
    """Return mean and standard deviation of the finite values; None if there is none."""
    column = torch.tensor([value for value in values if math.isfinite(value)], dtype=torch.float64)
    return Summary(column.mean().item(), column.std(unbiased=False).item(), len(column)) if len(column) else None


def split_summary(reports: Iterable[ModelReport]) -> list[HeadSummary]:
    """Return mean and standard deviation of every measure of every head over the reports of one model."""
    collected: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for report in reports:
        for head in report.heads:
            for name, value in head.measures.items():
                collected[head.layer, head.head][name].append(value)
    return [
        HeadSummary(layer, head, {name: part for name, values in measures.items() if (part := summary(values))})
        for (layer, head), measures in collected.items()
    ]


def ablation_report(
    model: StudiedModel, examples: Sequence[Example], seed: int, tick: Tick = no_tick, *, sampled: bool = True
) -> AblationReport | None:
    """Return the scores of a model whose edges or nodes are removed with each probability.

    Every model and every probability starts from the same seed.

    Args:
        model: the model.
        examples: the examples it is scored on.
        seed: seed of the removal.
        tick: is called after each probability.
        sampled: whether the examples are a sample of a data set, over which the intervals are computed; otherwise the
            intervals are over the random draws for these examples.

    Returns:
        The scores; None if the model predicts nothing, or if its attention is not computed by layers of this package,
        which alone can be ablated.
    """
    score = model.scorer(list(examples)) if attention_layers(model.task) else None
    if score is None:
        return None
    curves = {kind: _curve(model, score, kind, seed, tick, sampled=sampled) for kind in KINDS}
    return AblationReport(list(PROBABILITIES), **curves)


def _curve(model: StudiedModel, score: Scorer, kind: str, seed: int, tick: Tick, *, sampled: bool) -> AblationCurve:
    scores: list[Scores] = []
    for p in PROBABILITIES:
        with ablated(model.task, p, kind, torch.Generator().manual_seed(seed)):
            scores.append(score())
        tick()
    intervals = [mean_interval(part.probability, sampled=sampled) for part in scores]
    mean, low, high = (list(column) for column in zip(*intervals, strict=True))
    shares = [share_interval(part.correct, sampled=sampled) for part in scores if part.correct is not None]
    if not shares:
        return AblationCurve(mean, low, high)
    return AblationCurve(mean, low, high, *(list(column) for column in zip(*shares, strict=True)))


def mean_interval(values: Tensor, *, sampled: bool) -> tuple[float, float, float]:
    """Return the mean of (draws, examples) values in [0, 1] and the ends of its 95 % interval.

    Args:
        values: the values of each random draw and example.
        sampled: whether the examples are a random sample, so that the interval is that of the mean over all examples
            of the data set; otherwise the examples are fixed, and the interval is that of the mean over all draws.
    """
    values = values.double()
    draws, examples = values.shape
    mean = values.mean().item()
    if sampled and examples > 1:
        variance, freedom = values.mean(dim=0).var().item() / examples, examples - 1
    elif draws > 1:
        variance, freedom = values.var(dim=0).sum().item() / draws / examples**2, (draws - 1) * examples
    else:
        return mean, 0.0, 1.0
    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, freedom)) * math.sqrt(variance)
    return mean, max(0.0, mean - half), min(1.0, mean + half)


def share_interval(correct: Tensor, *, sampled: bool) -> tuple[float, float, float]:
    """Return the share of true values and the ends of its 95 % Wilson interval.

    Args:
        correct: (draws, trials) values.
        sampled: whether the trials are a random sample, as in ``mean_interval``: then several draws of one trial count
            once, because they are not independent.
    """
    n, share = correct.size(1) if sampled else correct.numel(), correct.double().mean().item()
    z = float(stats.norm.ppf(0.5 + CONFIDENCE / 2))
    center = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n))
    return share, max(0.0, center - half), min(1.0, center + half)


def study_lengths(examples: Sequence[Example], max_length: int) -> list[int]:
    """Return the sequence lengths that are measured: 50, 100, ..., or fifths of a shorter limit."""
    longest = min(max_length, max(len(example.input) for example in examples))
    step = 50 if longest >= 250 else max(1, longest // 5)
    return list(range(step, longest + 1, step))


def length_report(
    model: StudiedModel, examples: Sequence[Example], lengths: list[int], tick: Tick = no_tick
) -> LengthReport:
    """Return hops, entropy and neighbors, over all heads, of texts truncated to each length."""
    columns: dict[str, list[Summary | None]] = {name: [] for name in LENGTH_MEASURES}
    for length in lengths:
        long_enough = [example for example in examples if len(example.input) >= length][:TEXTS_PER_LENGTH]
        values: dict[str, list[float]] = defaultdict(list)
        for example in long_enough:
            for layer in model.maps(example.input[:length]).values():
                for name, value in measure(layer.weights, layer.lengths, LENGTH_MEASURES).items():
                    values[name] += value.flatten().tolist()
        for name in LENGTH_MEASURES:
            columns[name].append(summary(values[name]))
        tick()
    return LengthReport(lengths, **columns)
