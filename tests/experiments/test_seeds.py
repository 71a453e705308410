"""Summaries and paired differences against scipy and hand-computed values."""

import math

import pytest
from scipy import stats

from fna_lightning.experiments.seeds import paired_difference, summarize


def test_summary_of_five_seeds() -> None:
    values = [0.81, 0.83, 0.82, 0.86, 0.80]
    summary = summarize(values)
    low, high = stats.t.interval(0.95, 4, loc=summary.mean, scale=stats.sem(values))
    assert summary.half_width == pytest.approx((high - low) / 2)
    assert (summary.best, summary.worst, summary.median) == (0.86, 0.80, 0.82)
    assert summarize(values, larger_is_better=False).best == 0.80


def test_one_seed_has_no_interval() -> None:
    assert math.isnan(summarize([0.5]).half_width)
    with pytest.raises(ValueError, match="no seed has finished"):
        summarize([])


def test_paired_difference_is_the_paired_t_test() -> None:
    values, baseline = {0: 0.9, 1: 0.8, 2: 0.85, 9: 0.1}, {0: 0.7, 1: 0.75, 2: 0.8, 5: 0.9}
    pair = paired_difference(values, baseline)
    assert pair.count == 3
    assert pair.p_value == pytest.approx(stats.ttest_rel([0.9, 0.8, 0.85], [0.7, 0.75, 0.8]).pvalue)
    assert paired_difference({0: 1.0, 1: 2.0}, {0: 1.0, 1: 2.0}).p_value == 1.0
    assert math.isnan(paired_difference({0: 1.0}, {0: 2.0}).p_value)
