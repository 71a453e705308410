"""Random fields made of plane waves: one of a single length scale, and one of all scales."""

from abc import abstractmethod

import numpy as np
from numpy.typing import NDArray

from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeArrays, EpisodeConfig
from fna_lightning.tasks.fields.surveys import cut, standardized, survey_points

SMOOTH_WAVES = 32
OCTAVES, WAVES_PER_OCTAVE = 10, 6


class WaveField(FieldData):
    """Base class of random fields on [-1, 1]^2 that are sums of plane waves.

    Args:
        survey: how points are chosen in training, "even" or "levy".
        eval_surveys: surveys of the evaluation sets; None takes ``survey``.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    surveys = ("even", "levy")

    def __init__(
        self,
        *,
        survey: str,
        eval_surveys: list[str] | None,
        episodes: EpisodeConfig,
        batch_size: int,
        seed: int | None,
    ) -> None:
        super().__init__(episodes=episodes, batch_size=batch_size, seed=seed)
        self.choose_surveys(survey, eval_surveys)

    @property
    def codec(self) -> FieldCodec:
        return FieldCodec(["x", "y"], ["value"])

    @abstractmethod
    def waves(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return the (count, waves, 2) wave vectors and the (count, waves) amplitudes of random fields."""

    def values(self, rng: np.random.Generator, x: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return the (count, points, 1) values of random fields at the positions ``x``."""
        vectors, amplitudes = self.waves(rng, len(x))
        phases = rng.uniform(0.0, 2.0 * np.pi, amplitudes.shape)
        angles = x @ vectors.transpose(0, 2, 1).astype(np.float32) + phases[:, None].astype(np.float32)
        return np.cos(angles) @ amplitudes[..., None].astype(np.float32)


class SmoothField(WaveField):
    """A smooth random field with one length scale, measured with noise.

    Args:
        length: length scale of the field.
        noise: standard deviation of the noise of a measurement; the field has variance 1.
        survey: how points are chosen in training, "even" or "levy".
        eval_surveys: surveys of the evaluation sets; None takes ``survey``.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    def __init__(
        self,
        *,
        length: float = 0.4,
        noise: float = 0.05,
        survey: str = "even",
        eval_surveys: list[str] | None = None,
        episodes: EpisodeConfig = EpisodeConfig(context=(16, 64), eval_context=(16, 64, 256, 1024)),  # noqa: B008
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(survey=survey, eval_surveys=eval_surveys, episodes=episodes, batch_size=batch_size, seed=seed)
        if not length > 0.0:
            raise ValueError(f"length must be positive, got {length}")
        if noise < 0.0:
            raise ValueError(f"noise must not be negative, got {noise}")
        self.length = length
        self.noise = noise

    def waves(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        vectors = rng.standard_normal((count, SMOOTH_WAVES, 2)) / self.length
        return vectors, rng.standard_normal((count, SMOOTH_WAVES)) * np.sqrt(2.0 / SMOOTH_WAVES)

    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        x = survey_points(survey, rng, count, context + self.episodes.queries)
        y = self.values(rng, x)
        return cut(x, y + self.noise * rng.standard_normal(y.shape, dtype=np.float32), context)


class RoughField(WaveField):
    """A self-affine random field with details of all scales. Values are standardized by the context.

    Args:
        hurst: Hurst exponent in (0, 1); a smaller one makes a rougher field.
        survey: how points are chosen in training, "even" or "levy".
        eval_surveys: surveys of the evaluation sets; None takes ``survey``.
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    def __init__(
        self,
        *,
        hurst: float = 0.5,
        survey: str = "levy",
        eval_surveys: list[str] | None = None,
        episodes: EpisodeConfig = EpisodeConfig(),  # noqa: B008 - frozen
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__(survey=survey, eval_surveys=eval_surveys, episodes=episodes, batch_size=batch_size, seed=seed)
        if not 0.0 < hurst < 1.0:
            raise ValueError(f"hurst must lie between 0 and 1, got {hurst}")
        self.hurst = hurst

    def waves(self, rng: np.random.Generator, count: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        # In each octave the wave numbers are spread over a factor of 2; the longest wave is twice the square.
        octaves = np.repeat(np.arange(OCTAVES), WAVES_PER_OCTAVE) + rng.random((count, OCTAVES * WAVES_PER_OCTAVE))
        angles = rng.uniform(0.0, 2.0 * np.pi, octaves.shape)
        directions = np.stack([np.cos(angles), np.sin(angles)], axis=-1)
        vectors = 0.5 * np.pi * 2.0 ** octaves[..., None] * directions
        amplitudes = 2.0 ** (-self.hurst * octaves)
        # so that the field has variance 1
        amplitudes *= np.sqrt(2.0 / np.square(amplitudes).sum(axis=-1, keepdims=True))
        return vectors, rng.standard_normal(octaves.shape) * amplitudes

    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        x = survey_points(survey, rng, count, context + self.episodes.queries)
        return standardized(cut(x, self.values(rng, x), context))
