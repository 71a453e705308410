"""Scales of the reproduction: data sets, length of training and number of seeds."""

from dataclasses import dataclass, replace

Settings = tuple[tuple[str, str], ...]

QUIET: Settings = (("trainer.enable_progress_bar", "false"),)


@dataclass(frozen=True)
class Scale:
    """Size of the reproduction.

    Attributes:
        name: name on the command line.
        summary: description in the report.
        embedded: whether embedded data replaces the real data sets.
        full_training: whether models are trained as long as the paper's.
        seeds: number of seeds of every comparison.
        few_seeds: number of seeds of attribution, the scoreboard and the sweep over kappa.
        dims, depths: widths and depths of the IMDb grid.
        alphas: values of the sweep over alpha, in addition to 1.2 and 2.
        kappas: values of the sweep over kappa, in addition to the paper's rule.
        texts: number of texts over which graph measures are averaged.
        length: maximum number of tokens of these texts.
        small, full, sphere, strong, image, translation: settings that override the configurations of each family.
    """

    name: str
    summary: str
    embedded: bool
    full_training: bool
    seeds: int
    few_seeds: int
    dims: tuple[int, ...]
    depths: tuple[int, ...]
    alphas: tuple[str, ...]
    kappas: tuple[str, ...]
    texts: int
    length: int
    small: Settings = QUIET
    full: Settings = QUIET
    sphere: Settings = QUIET
    strong: Settings = QUIET
    image: Settings = QUIET
    translation: Settings = QUIET

    def with_settings(self, more: Settings) -> "Scale":
        """Return the scale with further settings for every run, such as the devices of the trainer."""
        return replace(
            self,
            small=(*self.small, *more),
            full=(*self.full, *more),
            sphere=(*self.sphere, *more),
            strong=(*self.strong, *more),
            image=(*self.image, *more),
            translation=(*self.translation, *more),
        )


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
    dims=(8,),
    depths=(1,),
    alphas=("1.6",),
    kappas=("4",),
    texts=32,
    length=60,
    small=_reviews(4000, 60, 4, ("model.optimizer.init_args.lr", "1e-2")),
    full=_reviews(96, 40, 1),
    sphere=_reviews(96, 40, 1),
    strong=_reviews(640, 60, 2, ("model.embedding.table.pairs", "1000")),
    image=(("trainer.max_epochs", "3"), *QUIET),
    translation=(("trainer.max_epochs", "1"), *QUIET),
)

SMALL = Scale(
    name="small",
    summary="Hours on two cores. Real IMDb, the paper's smallest model (one layer, one head, width 8), 3 epochs "
    "instead of 25 with the learning rate divided after the second; 3 seeds (2 for attribution, the sweep over kappa "
    "and the scoreboard). The six-layer models, CIFAR-10 and Multi30K need --scale paper.",
    embedded=False,
    full_training=False,
    seeds=3,
    few_seeds=2,
    dims=(8,),
    depths=(1,),
    alphas=("1", "1.6"),
    kappas=("2",),
    texts=100,
    length=500,
    # The order matters: it determines the names of the run folders, which are shared with `sweep --set`.
    small=(("trainer.max_epochs", "3"), ("model.lr_scheduler.init_args.milestones", "[2]"), *QUIET),
)

PAPER = Scale(
    name="paper",
    summary="Days on GPUs. All models are trained as in the paper, with 5 seeds.",
    embedded=False,
    full_training=True,
    seeds=5,
    few_seeds=5,
    dims=(8, 16, 32, 64),
    depths=(1, 2),
    alphas=("1", "1.4", "1.6", "1.8"),
    kappas=("1", "2", "4", "16", "64"),
    texts=100,
    length=500,
)

SCALES = {scale.name: scale for scale in (SMOKE, SMALL, PAPER)}
