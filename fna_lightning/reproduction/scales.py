"""Scales of the reproduction: data sets, length of training and number of seeds."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

Settings = tuple[tuple[str, str], ...]

QUIET: Settings = (("trainer.enable_progress_bar", "false"),)
FAMILIES = ("small", "full", "sphere", "strong", "image", "translation")


@dataclass(frozen=True)
class Sweep:
    """Values that the sweeps of the reproduction try.

    Attributes:
        dims: widths of the IMDb grid.
        depths: depths of the IMDb grid.
        alphas: values of alpha in addition to 1.2 and 2.
        kappas: values of kappa in addition to the paper's rule.
    """

    dims: tuple[int, ...]
    depths: tuple[int, ...]
    alphas: tuple[str, ...]
    kappas: tuple[str, ...]


@dataclass(frozen=True)
class Scale:
    """Size of the reproduction.

    Attributes:
        name: name on the command line.
        summary: description in the report.
        embedded: whether embedded data replaces the real data sets.
        full_training: whether models are trained as long as the paper's.
        seeds: number of seeds of every comparison.
        few_seeds: number of seeds of attribution and the sweep over kappa.
        sweep: values of the sweeps.
        texts: number of texts over which graph measures are averaged.
        length: maximum number of tokens of these texts.
        overrides: settings that override the configurations of a family (see ``FAMILIES``).
    """

    name: str
    summary: str
    embedded: bool
    full_training: bool
    seeds: int
    few_seeds: int
    sweep: Sweep
    texts: int
    length: int
    overrides: Mapping[str, Settings] = field(default_factory=dict)

    def settings(self, family: str) -> Settings:
        """Return the settings that override the configurations of a family."""
        return self.overrides.get(family, QUIET)

    def with_settings(self, more: Settings) -> "Scale":
        """Return the scale with further settings for every run, such as the devices of the trainer."""
        return replace(self, overrides={family: (*self.settings(family), *more) for family in FAMILIES})


def _reviews(train: int, longest: int, epochs: int, *more: tuple[str, str]) -> Settings:
    """Return the settings that replace IMDb by the embedded reviews."""
    return (
        ("data", "ReviewData"),
        ("data.train_size", str(train)),
        ("data.eval_size", "200"),
        ("data.longest", str(longest)),
        ("trainer.max_epochs", str(epochs)),
        *more,
        *QUIET,
    )


SMOKE = Scale(
    name="smoke",
    summary="Minutes on two cores. The paper's recipes on embedded data (generated reviews, scikit-learn's digits, "
    "number words), a few steps, one seed. This checks that every artifact runs; the accuracies have no meaning, and "
    "only the theoretical results are exact.",
    embedded=True,
    full_training=False,
    seeds=1,
    few_seeds=1,
    sweep=Sweep(dims=(8,), depths=(1,), alphas=("1.6",), kappas=("4",)),
    texts=32,
    length=60,
    overrides={
        "small": _reviews(4000, 60, 4, ("model.optimizer.init_args.lr", "1e-2")),
        "full": _reviews(96, 40, 1),
        "sphere": _reviews(96, 40, 1),
        "strong": _reviews(
            640,
            60,
            2,
            ("model.embedding.table.pairs", "1000"),
            ("model.linear.pairs", "1000"),
            ("model.linear.triples", "1000"),
        ),
        "image": (("trainer.max_epochs", "3"), *QUIET),
        "translation": (("trainer.max_epochs", "1"), *QUIET),
    },
)

SMALL = Scale(
    name="small",
    summary="Hours on two cores. Real IMDb, the paper's smallest model (one layer, one head, width 8), 3 epochs "
    "instead of 25 with the learning rate divided after the second; 3 seeds (2 for attribution and the sweep over "
    "kappa). The paper's six-layer, CIFAR-10 and Multi30K models need --scale paper; the scoreboard trains strong "
    "recipes of all three tasks.",
    embedded=False,
    full_training=False,
    seeds=3,
    few_seeds=2,
    sweep=Sweep(dims=(8,), depths=(1,), alphas=("1", "1.6"), kappas=("2",)),
    texts=100,
    length=500,
    # The order matters: it determines the names of the run folders, which are shared with `sweep --set`.
    overrides={
        "small": (("trainer.max_epochs", "3"), ("model.lr_scheduler.init_args.milestones", "[2]"), *QUIET),
        # the recipes of the paper, of which only the first epochs are trained
        "full": (("trainer.max_epochs", "2"), *QUIET),
        "image": (("trainer.max_epochs", "30"), *QUIET),
        "translation": (("trainer.max_epochs", "2"), *QUIET),
    },
)

PAPER = Scale(
    name="paper",
    summary="Days on GPUs. All models are trained as in the paper, with 5 seeds.",
    embedded=False,
    full_training=True,
    seeds=5,
    few_seeds=5,
    sweep=Sweep(
        dims=(8, 16, 32, 64), depths=(1, 2), alphas=("1", "1.4", "1.6", "1.8"), kappas=("1", "2", "4", "16", "64")
    ),
    texts=100,
    length=500,
)

SCALES = {scale.name: scale for scale in (SMOKE, SMALL, PAPER)}
