"""Surveys: random positions of measurements in [-1, 1]^2."""

import numpy as np

from fna_lightning.tasks.fields.episodes import EpisodeArrays, Points

# Smallest and largest step of a Levy flight.
LEVY_STEP = 0.016
LEVY_LIMIT = 2.0
# Smallest deviation of a context that values are divided by; the deviation of the whole field is 1. It only prevents a
# division by zero: the contexts of the terrain are never that flat.
FLAT = 0.01


def survey_points(name: str, rng: np.random.Generator, count: int, points: int) -> Points:
    """Return the (count, points, 2) positions of a survey, in random order: "even" or "levy"."""
    if name == "even":
        return rng.uniform(-1.0, 1.0, (count, points, 2)).astype(np.float32)
    return levy_flights(rng, count, points)


def levy_flights(rng: np.random.Generator, count: int, points: int) -> Points:
    """Return (count, points, 2) positions of Levy flights that are reflected at the border, in random order.

    The length of a step has the density 1 / length^2, so there are dense clusters and empty regions of every size.
    """
    # 1 - u lies in (0, 1]
    lengths = np.minimum(LEVY_STEP / (1.0 - rng.random((count, points))), LEVY_LIMIT)
    angles = rng.uniform(0.0, 2.0 * np.pi, (count, points))
    steps = lengths[..., None] * np.stack([np.cos(angles), np.sin(angles)], axis=-1)
    steps[:, 0] = rng.uniform(-1.0, 1.0, (count, 2))
    positions = reflect(steps.cumsum(axis=1)).astype(np.float32)
    order = rng.random((count, points)).argsort(axis=1)
    return np.take_along_axis(positions, order[..., None], axis=1)


def reflect(positions: np.ndarray) -> np.ndarray:
    """Return positions of a path that is reflected at -1 and 1, from those of the same path without a border."""
    return np.abs((positions - 1.0) % 4.0 - 2.0) - 1.0


def cut(x: Points, y: Points, context: int) -> EpisodeArrays:
    """Return episodes whose first ``context`` points are the context and whose other points are the queries."""
    return EpisodeArrays(x[:, :context], y[:, :context], x[:, context:], y[:, context:])


def standardized(episodes: EpisodeArrays) -> EpisodeArrays:
    """Return episodes whose values are standardized by mean and standard deviation of the context.

    The deviation is taken as at least 0.01, where 1 is the deviation of the whole field.
    """
    mean = episodes.context_y.mean(axis=1, keepdims=True)
    scale = np.maximum(episodes.context_y.std(axis=1, keepdims=True), FLAT)
    return episodes._replace(context_y=(episodes.context_y - mean) / scale, query_y=(episodes.query_y - mean) / scale)
