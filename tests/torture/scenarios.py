"""Scenarios of the torture test: what is trained, by how many processes, and where signals are sent."""

from dataclasses import dataclass
from pathlib import Path

# ten batches per epoch, thirty steps, about a second
REVIEWS = [
    *("--config", "reviews_fna.yaml", "--data.train_size=100", "--data.eval_size=30", "--data.longest=40"),
    *("--data.batch_size=10", "--model.encoder.dropout=0.1", "--model.encoder.dim=16", "--model.encoder.ffn_dim=16"),
]
NUMBERS = [
    *("--config", "numbers_fna.yaml", "--data.train_size=110", "--data.eval_size=30", "--data.batch_tokens=100"),
    *("--model.network.encoder.dim=16", "--model.network.encoder.ffn_dim=16", "--model.network.encoder.depth=1"),
    *("--model.network.encoder.dropout=0.1", "--model.bleu_every=2"),
]
IMDB = [
    *("--config", "imdb_small_fna.yaml", "--data.batch_size=6", "--data.tokenization.kind=word"),
    *("--data.tokenization.vocab_size=100", "--data.tokenization.max_length=16"),
]
COMMON = [
    *("--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false", "--trainer.accelerator=cpu"),
    *("--trainer.log_every_n_steps=1", "--trainer.max_epochs=3", "--trainer.callbacks=[]"),
    # a checkpoint every 0.3 s in addition to those before validations
    *("--trainer.callbacks+=LastCheckpoint", "--trainer.callbacks.minutes=0.005"),
]
SCHEDULERS = "torch.optim.lr_scheduler"
CALLBACKS = "lightning.pytorch.callbacks"

# points at which a process sends itself a signal; see points.py
POINTS = ("validation", "checkpoint write", "metrics write", "training end", "results write")


@dataclass(frozen=True)
class Scenario:
    """A run and the points at which it is stopped.

    A run consists of legs: the first process, and one more for each time it is resumed.

    Args:
        arguments: arguments of ``fit``.
        points: points at which signals are sent, in addition to random moments.
        ranks: number of ranks of each leg in turn; None trains in a forked child.
        effective_batch: number of examples in one step of all ranks; None keeps the batch size of each rank.
        cached: whether each run first builds a cache of its own.
    """

    arguments: list[str]
    points: tuple[str, ...] = POINTS
    ranks: tuple[int, ...] | None = None
    effective_batch: int | None = 10
    cached: bool = False

    @property
    def exact(self) -> bool:
        """Whether the number of processes stays the same, so that the result must be bit-identical."""
        return self.ranks is None or len(set(self.ranks)) == 1

    def leg(self, number: int) -> list[str]:
        """Return the settings of one leg that differ between legs."""
        if self.ranks is None:
            return []
        ranks = self.ranks[number % len(self.ranks)]
        batch = [f"--data.batch_size={self.effective_batch // ranks}"] if self.effective_batch else []
        return [f"--trainer.devices={ranks}", f"--trainer.strategy={'ddp' if ranks > 1 else 'auto'}", *batch]

    def first(self, folder: Path) -> list[str]:
        """Return the arguments of ``fit``; ``folder`` holds the data of the scenario."""
        data = [f"--data.path={folder / 'imdb'}"] if self.cached else []
        return ["fit", *self.arguments, *data]


def reviews(*more: str) -> list[str]:
    """Return the arguments of a run on the embedded reviews with additional settings."""
    return [*REVIEWS, *COMMON, *more]


def callback(name: str, **settings: object) -> list[str]:
    """Return the arguments that add a callback."""
    return [f"--trainer.callbacks+={name}", *(f"--trainer.callbacks.{key}={value}" for key, value in settings.items())]


SCENARIOS = {
    "no workers": Scenario(reviews()),
    "two workers": Scenario(reviews("--data.num_workers=2")),
    "accumulation": Scenario(reviews("--trainer.accumulate_grad_batches=2", "--trainer.val_check_interval=5")),
    "fractional validation interval": Scenario(reviews("--trainer.val_check_interval=0.25")),
    "ReduceLROnPlateau": Scenario(
        reviews(f"--model.lr_scheduler={SCHEDULERS}.ReduceLROnPlateau", "--model.lr_scheduler.patience=0")
    ),
    "WarmupCosine": Scenario(reviews("--model.lr_scheduler=fna_lightning.training.schedules.WarmupCosine")),
    "InverseSqrt": Scenario(reviews("--model.lr_scheduler=InverseSqrt", "--model.lr_scheduler.warmup=8")),
    "EMA": Scenario(reviews(*callback(f"{CALLBACKS}.EMAWeightAveraging", decay=0.9))),
    "AverageEpochs": Scenario(reviews(*callback("AverageEpochs", last=2))),
    "SWA": Scenario(
        reviews(
            *callback(f"{CALLBACKS}.StochasticWeightAveraging", swa_lrs=0.001, swa_epoch_start=0.4, annealing_epochs=1)
        )
    ),
    "bf16-mixed": Scenario(reviews("--trainer.precision=bf16-mixed")),
    "translation": Scenario([*NUMBERS, *COMMON]),
    "cache": Scenario([*IMDB, *COMMON], ("cache", *POINTS[1:3], "cache"), cached=True),
    "two ranks": Scenario(reviews(), ranks=(2,)),
    "ranks 2, 1, 2": Scenario(reviews(), ranks=(2, 1), effective_batch=None),
    "ranks 2, 1, 2 with the same effective batch": Scenario(reviews(), ranks=(2, 1)),
}
