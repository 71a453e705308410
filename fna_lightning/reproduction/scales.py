"""How large a reproduction is: which data, how long, how many seeds - in one place, and stated on the page."""

from dataclasses import dataclass, replace

Settings = tuple[tuple[str, str], ...]

QUIET: Settings = (("trainer.enable_progress_bar", "false"),)


@dataclass(frozen=True)
class Scale:
    """One size of the whole thing.

    Attributes:
        name: on the command line.
        says: what it is, for the page.
        embedded: whether the embedded data stand in for the real sets.
        full_training: whether models train as long as the paper's.
        seeds: of every comparison.
        few_seeds: of attribution and of the settings between which a sweep only draws a line.
        dims, depths: of the IMDb grid.
        alphas: of the sweep over alpha; 1.2 and 2 are always there.
        kappas: of the sweep over kappa, beside the rule of the paper.
        texts: over which the graph of an attention is averaged.
        length: most tokens of a text whose graph is studied.
        small, full, sphere, strong, image, translation: settings laid over the configurations of each family.
    """

    name: str
    says: str
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
        """Return the scale with settings laid over every run, such as the devices of a trainer."""
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
    """Return the settings that put the embedded reviews in the place of IMDb."""
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
    says="Minutes on two cores. The recipes of the paper on embedded data (made-up reviews, scikit-learn's digits, "
    "number words), a few steps, one seed: it shows that every piece runs, and no accuracy means anything. Only the "
    "theory is exact.",
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
    says="Hours on two cores. Real IMDb, the paper's smallest model (one layer, one head, width 8), 3 epochs instead "
    "of 25 with the learning rate divided after the second; 3 seeds (attribution, the sweep over kappa and the "
    "scoreboard: 2). The six-layer models, CIFAR-10 and Multi30K need --scale paper.",
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
    # in this order they name the folders of runs made by `sweep --set`
    small=(("trainer.max_epochs", "3"), ("model.lr_scheduler.init_args.milestones", "[2]"), *QUIET),
)

PAPER = Scale(
    name="paper",
    says="Days on GPUs. Everything as the paper trains it, 5 seeds.",
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
