"""Sizes of the comparison on scattered fields."""

from dataclasses import dataclass

ALL_TASKS = (
    *("terrain", "terrain-deep", "pixels", "pixels-all", "recall-cauchy", "recall-gaussian", "smooth", "rough"),
    *("tail-1.5", "tail-2", "tail-4", "tail-inf"),
)
ALL_ATTENTIONS = ("fna", "fna-paper", "gaussian", "student", "dot", "qk-norm", "ssmax", "uniform")


@dataclass(frozen=True)
class FieldScale:
    """Size of the comparison.

    Attributes:
        embedded: whether crops of scikit-learn's photographs replace CIFAR-10.
        tasks: names of the tasks.
        attentions: names of the attentions.
        seeds: number of seeds.
        steps: training steps of a run.
        episodes: validation episodes, and test episodes, of each evaluation set.
    """

    embedded: bool
    tasks: tuple[str, ...] = ALL_TASKS
    attentions: tuple[str, ...] = ALL_ATTENTIONS
    seeds: int = 6
    steps: int = 1000
    episodes: int = 512


FIELD_SCALES = {
    "smoke": FieldScale(
        embedded=True,
        tasks=("terrain", "recall-cauchy", "tail-inf"),
        attentions=("fna", "gaussian", "uniform"),
        seeds=2,
        steps=2,
        episodes=32,
    ),
    "small": FieldScale(embedded=False),
    "paper": FieldScale(embedded=False, seeds=10, steps=4000),
}
