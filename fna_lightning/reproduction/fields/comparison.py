"""Results of the comparison: means with intervals, and paired tests of FNA against every other attention."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from fna_lightning.experiments.seeds import Summary, holm, paired_difference, summarize
from fna_lightning.reproduction.fields.training import Errors

# task -> attention -> seed -> errors
RunErrors = Mapping[str, Mapping[str, Mapping[int, Errors]]]

OURS = "fna"
# Corrected p-value below which a difference counts.
LEVEL = 0.01


@dataclass(frozen=True)
class Comparison:
    """FNA against one other attention on one evaluation set, paired by seed.

    Attributes:
        task: name of the task.
        eval_set: name of the evaluation set.
        attention: name of the other attention.
        difference: mean error of FNA minus that of the other attention.
        seed_half_width: half the 95 % interval over seeds.
        episode_half_width: half the 95 % interval over groups of test episodes, with the errors averaged over seeds.
        p_value: of the paired t-test over seeds.
        corrected: p-value after Holm's correction for all comparisons.
        seeds: number of seeds.
    """

    task: str
    eval_set: str
    attention: str
    difference: float
    seed_half_width: float
    episode_half_width: float
    p_value: float
    corrected: float
    seeds: int

    @property
    def verdict(self) -> str:
        """Who is better: "FNA", "the other", or "no difference" if the test does not tell."""
        if not self.corrected < LEVEL:
            return "no difference"
        return "FNA" if self.difference < 0.0 else "the other"


def mean_errors(by_seed: Mapping[int, Errors], eval_set: str) -> dict[int, float]:
    """Return the mean error on an evaluation set by seed."""
    return {seed: float(np.mean(errors[eval_set])) for seed, errors in by_seed.items()}


def summary(by_seed: Mapping[int, Errors], eval_set: str) -> Summary:
    """Return the summary over seeds of the error on an evaluation set."""
    return summarize(list(mean_errors(by_seed, eval_set).values()), larger_is_better=False)


def compare(results: RunErrors, eval_sets: Mapping[str, Sequence[str]]) -> list[Comparison]:
    """Return FNA against every other attention, with p-values corrected for the number of all comparisons.

    Args:
        results: errors of the finished runs.
        eval_sets: the evaluation sets of each task on which they are compared.
    """
    rows = []
    for task, names in eval_sets.items():
        attentions = results.get(task, {})
        for name in names:
            for other, by_seed in attentions.items():
                if other != OURS and attentions.get(OURS):
                    rows.append(_compare(task, name, other, attentions[OURS], by_seed))
    corrected = holm([row.p_value for row in rows])
    return [Comparison(**{**vars(row), "corrected": p_value}) for row, p_value in zip(rows, corrected, strict=True)]


def _compare(
    task: str, eval_set: str, other: str, ours: Mapping[int, Errors], others: Mapping[int, Errors]
) -> Comparison:
    pair = paired_difference(mean_errors(ours, eval_set), mean_errors(others, eval_set))
    seeds = sorted(ours.keys() & others.keys())
    groups = np.mean([np.subtract(ours[seed][eval_set], others[seed][eval_set]) for seed in seeds], axis=0)
    episode_half_width = summarize(groups.tolist()).half_width if seeds else math.nan
    return Comparison(
        task, eval_set, other, pair.mean, pair.half_width, episode_half_width, pair.p_value, math.nan, pair.count
    )
