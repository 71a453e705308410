"""Associative recall: which of many stored keys does a noisy cue belong to?"""

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeArrays, EpisodeConfig

NOISES = ("gaussian", "stable", "student")


class NoisyRecall(FieldData):
    """Recall of labels: context points are random keys with labels, a query is a key plus noise.

    Train it with ``CategoricalLikelihood``.

    Args:
        noise: distribution of the noise, which is isotropic: "gaussian"; "stable" with the index ``tail`` in (0, 2];
            or "student" with ``tail`` degrees of freedom. "student" and "stable" agree for ``tail`` = 1, the Cauchy
            distribution.
        tail: tail index of the noise; smaller values have heavier tails. "gaussian" ignores it.
        noise_scale: factor of the noise; 0 gives exact cues.
        dim: number of coordinates of a key.
        num_classes: number of labels.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    def __init__(
        self,
        *,
        noise: str = "student",
        tail: float = 1.0,
        noise_scale: float = 0.15,
        dim: int = 8,
        num_classes: int = 8,
        episodes: EpisodeConfig = EpisodeConfig(eval_context=(16, 64, 256, 1024)),  # noqa: B008 - frozen
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(episodes=episodes, batch_size=batch_size, seed=seed)
        if noise not in NOISES:
            raise ValueError(f"unknown noise {noise!r}; choose one of {', '.join(NOISES)}")
        if not tail > 0.0 or (noise == "stable" and tail > 2.0):
            limit = "in (0, 2]" if noise == "stable" else "positive"
            raise ValueError(f"tail of {noise} noise must be {limit}, got {tail}")
        if noise_scale < 0.0:
            raise ValueError(f"noise_scale must not be negative, got {noise_scale}")
        if dim < 1 or num_classes < 2:
            raise ValueError(f"dim must be at least 1 and num_classes at least 2, got {dim} and {num_classes}")
        self.noise = noise
        self.tail = tail
        self.noise_scale = noise_scale
        self.dim = dim
        self.num_classes = num_classes

    @property
    def codec(self) -> FieldCodec:
        return FieldCodec([f"key {i}" for i in range(self.dim)], [f"label {i}" for i in range(self.num_classes)])

    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        keys = rng.standard_normal((count, context, self.dim))
        labels = rng.integers(0, self.num_classes, (count, context))
        chosen = rng.integers(0, context, (count, self.episodes.queries))
        noise = isotropic_noise(self.noise, self.tail, rng, (*chosen.shape, self.dim))
        cues = np.take_along_axis(keys, chosen[..., None], axis=1) + self.noise_scale * noise
        one_hot = np.eye(self.num_classes, dtype=np.float32)
        return EpisodeArrays(
            keys.astype(np.float32),
            one_hot[labels],
            cues.astype(np.float32),
            one_hot[np.take_along_axis(labels, chosen, axis=1)],
        )


def isotropic_noise(name: str, tail: float, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return isotropic random vectors along the last axis.

    "gaussian" is standard normal. "student" is normal / sqrt(chi^2 / nu) with nu = ``tail``. "stable" has the
    characteristic function exp(-|t|^alpha) with alpha = ``tail``, so that alpha = 2 is normal with variance 2.
    """
    normal = rng.standard_normal(shape)
    radial_shape = (*shape[:-1], 1)
    if name == "student":
        return normal / np.sqrt(rng.chisquare(tail, radial_shape) / tail)
    if name == "stable":
        return normal * np.sqrt(2.0 * positive_stable(tail / 2.0, rng, radial_shape))
    return normal


def positive_stable(index: float, rng: np.random.Generator, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return positive random numbers with the Laplace transform exp(-s^index), 0 < index <= 1 (Kanter's method)."""
    if index == 1.0:
        return np.ones(shape)
    # 1 - u lies in (0, 1]; at pi the sine is only zero up to rounding.
    angle = np.pi * (1.0 - rng.random(shape))
    rate = rng.standard_exponential(shape)
    ratio = np.sin((1.0 - index) * angle) / rate
    return np.sin(index * angle) / np.sin(angle) ** (1.0 / index) * ratio ** ((1.0 - index) / index)
