"""The tasks of the comparison."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import partial

from fna_lightning.nn import AttentiveProcess, NeuralProcess, TransformerProcess
from fna_lightning.reproduction.fields.scales import FieldScale
from fna_lightning.tasks import Cifar10Data, NoisyRecall, PixelFields, RoughField, SmoothField, Terrain
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeConfig
from fna_lightning.tasks.fields.likelihood import CategoricalLikelihood, Likelihood, SquaredError

BATCH_SIZE = 16
# Of 1e-2, 3e-3 and 1e-3 the best for dot-product attention on validation episodes.
DEEP_LEARNING_RATE = 3e-3
RECALL_SIZES = (16, 64, 256, 1024)
# Degrees of freedom of Student noise: its scale. Bayes' rule has a negative log-likelihood of about 0.32 at n = 64 for
# each of them, so that the tasks are equally hard.
TAILS = {1.0: 0.15, 1.5: 0.24, 2.0: 0.29, 4.0: 0.41, math.inf: 0.565}
# Attentions of the tasks that are only in the figure of tail indices.
TAIL_ATTENTIONS = ("fna", "gaussian", "student", "qk-norm", "ssmax")

Build = Callable[[FieldScale, EpisodeConfig, int | None], FieldData]


@dataclass(frozen=True)
class FieldTask:
    """A task of the comparison.

    Attributes:
        name: name in files.
        label: name in tables and figures.
        build: returns the data module for a scale, the numbers of points and of episodes, and a seed.
        episodes: numbers of points; the numbers of episodes come from the scale.
        primary: evaluation sets on which FNA is tested against every other attention.
        further: other evaluation sets in the table.
        tail: tail index of the noise of the cues; None if there are no cues.
        in_tables: whether the task is in the tables, or only in the figure of tail indices.
        network: builds the network.
        learning_rate: largest learning rate.
        attentions: names of the attentions that are trained; None trains all.
    """

    name: str
    label: str
    build: Build
    episodes: EpisodeConfig
    primary: tuple[str, ...]
    further: tuple[str, ...] = ()
    tail: float | None = None
    in_tables: bool = True
    network: Callable[..., NeuralProcess] = AttentiveProcess
    learning_rate: float = 1e-2
    attentions: tuple[str, ...] | None = None

    @property
    def likelihood(self) -> Likelihood:
        """The meaning of the outputs."""
        return SquaredError() if self.tail is None else CategoricalLikelihood()

    @property
    def error(self) -> str:
        """Name of the error."""
        return self.likelihood.error

    def data(self, scale: FieldScale, seed: int | None = None) -> FieldData:
        """Return the data module of a run."""
        episodes = replace(
            self.episodes, train_size=BATCH_SIZE * scale.steps, val_size=scale.episodes, test_size=scale.episodes
        )
        return self.build(scale, episodes, seed)


def _pixels(scale: FieldScale, episodes: EpisodeConfig, seed: int | None) -> FieldData:
    images = None if scale.embedded else Cifar10Data()
    return PixelFields(images=images, episodes=episodes, batch_size=BATCH_SIZE, seed=seed)


def _generated(cls: type[FieldData], settings: dict[str, object], _: FieldScale, *rest: object) -> FieldData:
    episodes, seed = rest
    return cls(**settings, episodes=episodes, batch_size=BATCH_SIZE, seed=seed)  # type: ignore[arg-type]


def _recall(name: str, label: str, tail: float, noise_scale: float, **settings: object) -> FieldTask:
    noise = {"noise": "gaussian"} if math.isinf(tail) else {"noise": "student", "tail": tail}
    build = partial(_generated, NoisyRecall, {**noise, "noise_scale": noise_scale})
    return FieldTask(name, label, build, EpisodeConfig(eval_context=RECALL_SIZES), tail=tail, **settings)  # type: ignore[arg-type]


def _tail(name: str, tail: float) -> FieldTask:
    label = f"recall, Student noise, nu = {tail:g}"
    return _recall(name, label, tail, TAILS[tail], primary=(), in_tables=False, attentions=TAIL_ATTENTIONS)


TASKS = {
    task.name: task
    for task in (
        FieldTask(
            "terrain",
            "terrain",
            partial(_generated, Terrain, {"eval_surveys": ["levy", "even"]}),
            EpisodeConfig(eval_context=(16, 64, 256)),
            primary=("n64", "n64_even"),
            further=("n16", "n256"),
        ),
        FieldTask(
            "terrain-deep",
            "terrain, two layers of width 64",
            partial(_generated, Terrain, {"eval_surveys": ["levy", "even"]}),
            EpisodeConfig(eval_context=(16, 64, 256)),
            primary=("n64", "n64_even"),
            further=("n16", "n256"),
            network=TransformerProcess,
            learning_rate=DEEP_LEARNING_RATE,
            attentions=("fna", "gaussian", "student", "dot", "qk-norm", "uniform"),
        ),
        FieldTask(
            "pixels",
            "CIFAR-10 pixels, trained with n = 16 to 128",
            _pixels,
            EpisodeConfig(context=(16, 128), eval_context=(16, 64, 256, 768)),
            primary=("n256", "n768"),
            further=("n16", "n64"),
        ),
        FieldTask(
            "pixels-all",
            "CIFAR-10 pixels, trained with all n",
            _pixels,
            EpisodeConfig(context=(16, 768), log_uniform=True, eval_context=(16, 64, 256, 768)),
            primary=("n256", "n768"),
            further=("n16", "n64"),
        ),
        _recall(
            *("recall-cauchy", "recall, Cauchy noise", 1.0, TAILS[1.0]),
            primary=("n64", "n1024"),
            further=("n16", "n256"),
        ),
        _recall(
            *("recall-gaussian", "recall, Gaussian noise", math.inf, 0.4),
            primary=("n64", "n1024"),
            further=("n16", "n256"),
        ),
        FieldTask(
            "smooth",
            "smooth field of one scale",
            partial(_generated, SmoothField, {}),
            EpisodeConfig(context=(16, 64), eval_context=(16, 64, 256, 1024)),
            primary=("n64", "n256"),
            further=("n16", "n1024"),
        ),
        FieldTask(
            "rough",
            "rough field of all scales",
            partial(_generated, RoughField, {}),
            EpisodeConfig(eval_context=(16, 64, 256)),
            primary=("n64", "n256"),
            further=("n16",),
        ),
        _tail("tail-1.5", 1.5),
        _tail("tail-2", 2.0),
        _tail("tail-4", 4.0),
        _tail("tail-inf", math.inf),
    )
}


def tail_tasks(names: tuple[str, ...]) -> dict[float, FieldTask]:
    """Return the tasks of equal difficulty among ``names`` by the tail index of their noise."""
    selected = [TASKS[name] for name in names if name == "recall-cauchy" or name.startswith("tail-")]
    return {task.tail: task for task in selected if task.tail is not None}


def set_label(name: str) -> str:
    """Return the name of an evaluation set in tables: "n = 64", or "n = 64, even survey"."""
    size, _, survey = name.removeprefix("n").partition("_")
    return f"n = {size}" + (f", {survey} survey" if survey else "")


def curve_sizes(names: Iterable[str]) -> dict[int, str]:
    """Return the evaluation sets with the survey of training by their number of context points."""
    return {int(name[1:]): name for name in names if "_" not in name}
