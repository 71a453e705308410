"""Statistics over seeds: summaries with 95 % intervals, paired differences, and correction for many tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy import stats


@dataclass(frozen=True)
class Summary:
    """One metric over seeds.

    Attributes:
        count: number of seeds.
        half_width: half the width of the 95 % Student interval of the mean; NaN for a single seed.
    """

    count: int
    mean: float
    median: float
    best: float
    worst: float
    std: float
    half_width: float


@dataclass(frozen=True)
class PairedDifference:
    """Mean difference to a baseline over the seeds both have.

    Attributes:
        count: number of common seeds.
        p_value: of the paired t-test; NaN for fewer than two seeds.
        half_width: half the width of the 95 % interval of the mean; NaN for a single seed.
    """

    count: int
    mean: float
    p_value: float
    half_width: float


def summarize(values: Sequence[float], *, larger_is_better: bool = True) -> Summary:
    """Return the summary of one metric over seeds."""
    if not values:
        raise ValueError("no seed has finished, so there is nothing to summarize")
    ordered = np.sort(np.asarray(values, dtype=np.float64))
    worst, best = (ordered[0], ordered[-1]) if larger_is_better else (ordered[-1], ordered[0])
    count = len(ordered)
    std = float(ordered.std(ddof=1)) if count > 1 else math.nan
    half_width = float(stats.t.ppf(0.975, count - 1)) * std / math.sqrt(count) if count > 1 else math.nan
    return Summary(count, float(ordered.mean()), float(np.median(ordered)), float(best), float(worst), std, half_width)


def paired_difference(values: dict[int, float], baseline: dict[int, float]) -> PairedDifference:
    """Return the difference of two metrics by seed; the p-value is 1 if all pairs are equal."""
    seeds = sorted(values.keys() & baseline.keys())
    if not seeds:
        return PairedDifference(0, math.nan, math.nan, math.nan)
    differences = [values[seed] - baseline[seed] for seed in seeds]
    summary = summarize(differences)
    if len(seeds) < 2:
        p_value = math.nan
    elif np.ptp(differences) == 0.0:
        p_value = 1.0 if differences[0] == 0.0 else 0.0
    else:
        p_value = float(stats.ttest_1samp(differences, 0.0).pvalue)
    return PairedDifference(len(seeds), summary.mean, p_value, summary.half_width)


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for their number (Holm, 1979); NaN stays NaN and does not count."""
    valid = [index for index, p_value in enumerate(p_values) if not math.isnan(p_value)]
    corrected = [math.nan] * len(p_values)
    largest = 0.0
    for rank, index in enumerate(sorted(valid, key=lambda index: p_values[index])):
        largest = max(largest, min(1.0, (len(valid) - rank) * p_values[index]))
        corrected[index] = largest
    return corrected
