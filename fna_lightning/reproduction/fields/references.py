"""Classical references on the same test episodes: nearest neighbor, inverse distances, Gaussian process, Bayes' rule.

Their settings (the power of the distance, the kernel of the Gaussian process) are chosen on validation episodes,
separately for each evaluation set, which a trained attention cannot do.
"""

import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fna_lightning.attention import Fractional, StudentT
from fna_lightning.reproduction.fields.scales import FieldScale
from fna_lightning.reproduction.fields.tasks import BATCH_SIZE, TASKS, FieldTask
from fna_lightning.reproduction.fields.training import RESULT_FORMAT, Errors, read_result
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import FieldBatch
from fna_lightning.tasks.fields.recall import NoisyRecall
from fna_lightning.utils.files import write_text

POWERS = (1.0, 2.0, 3.0, 4.0, 6.0, 9.0)
# Smoothness and length scale of the Matern kernel.
MATERN = tuple(itertools.product((0.5, 1.5), (0.1, 0.3, 1.0, 3.0)))
# Variance of the noise of the Gaussian process; the values have a variance of about 1.
NOISE = 1e-3
# Validation episodes on which the settings are chosen.
CHOICE_EPISODES = 16
# Smallest probability of a label, so that a reference that excludes a label has a finite error.
LEAST_PROBABILITY = 1e-6

NEAREST, INVERSE, PROCESS, BAYES = "nearest neighbor", "inverse distances", "Gaussian process", "Bayes' rule"
LABELS = (NEAREST, INVERSE, PROCESS, BAYES)

Array = NDArray[np.floating]
# (context x, context y, query x) of one episode -> predicted values of the queries
Predict = Callable[[Array, Array, Array], Array]


def nearest(x: Array, y: Array, queries: Array) -> Array:
    """Return the values of the nearest context points."""
    from sklearn.neighbors import KNeighborsRegressor

    return np.asarray(KNeighborsRegressor(1).fit(x, y).predict(queries))


def inverse_distances(x: Array, y: Array, queries: Array, *, power: float) -> Array:
    """Return means of the context weighted with a negative power of the distance (Shepard, 1968)."""
    from sklearn.neighbors import KNeighborsRegressor

    def weights(distances: Array) -> Array:
        # The ratio to the smallest distance keeps the powers finite.
        distances = np.maximum(distances, 1e-9)
        return np.asarray((distances / distances.min(axis=1, keepdims=True)) ** -power)

    return np.asarray(KNeighborsRegressor(len(x), weights=weights, algorithm="brute").fit(x, y).predict(queries))


def gaussian_process(x: Array, y: Array, queries: Array, *, smoothness: float, length: float) -> Array:
    """Return the mean of a Gaussian process with a Matern kernel (kriging with a known covariance)."""
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import Matern

    kernel = Matern(length, nu=smoothness)
    process = GaussianProcessRegressor(kernel, alpha=NOISE, optimizer=None, normalize_y=True)
    mean = process.fit(x.astype(np.float64), y.astype(np.float64)).predict(queries.astype(np.float64))
    return np.asarray(mean).reshape(len(queries), -1)


def bayes_rule(data: NoisyRecall, x: Array, y: Array, queries: Array) -> Array:
    """Return the probabilities of the labels given the cues: the best possible prediction.

    Keys are equally probable, so it is attention with the density of the noise as its kernel.
    """
    if data.noise == "gaussian":
        attention: Fractional | StudentT = Fractional(2.0, math.sqrt(2.0) * data.noise_scale)
    else:
        attention = StudentT(data.tail, data.noise_scale, data.dim)
    q, k, labels = (torch.from_numpy(array).double()[None, None] for array in (queries, x, y))
    return np.asarray((attention.weights(q, k) @ labels)[0, 0])


def candidates(task: FieldTask, data: FieldData) -> dict[str, dict[str, Predict]]:
    """Return the references of a task, each with its settings: label -> setting -> prediction."""
    inverse = {f"power {power:g}": partial(inverse_distances, power=power) for power in POWERS}
    if task.tail is not None:
        assert isinstance(data, NoisyRecall)
        return {INVERSE: {**inverse}, BAYES: {"": partial(bayes_rule, data)}}
    processes = {
        f"Matern {smoothness:g}, length {length:g}": partial(gaussian_process, smoothness=smoothness, length=length)
        for smoothness, length in MATERN
    }
    return {NEAREST: {"": nearest}, INVERSE: {**inverse}, PROCESS: {**processes}}


def run_references(task_name: str, scale: FieldScale, folder: Path) -> None:
    """Measure the references of a task and write them; a job of ``run_jobs``."""
    started = time.perf_counter()
    task = TASKS[task_name]
    data = task.data(scale)
    data.prepare_data()
    errors: dict[str, Errors] = {}
    settings: dict[str, dict[str, str]] = {}
    for label, predictions in candidates(task, data).items():
        errors[label], settings[label] = {}, {}
        for name in data.eval_sets:
            best = min(predictions, key=lambda setting: _choice_error(task, data, name, predictions[setting]))
            batches = _batches(data, "test", name, scale.episodes)
            errors[label][name] = [_error(task, batch, predictions[best]) for batch in batches]
            settings[label][name] = best
    result = {
        "key": reference_key(task_name, scale),
        "errors": errors,
        "settings": settings,
        "seconds": round(time.perf_counter() - started, 1),
    }
    path = reference_path(task_name, folder)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(result) + "\n")


def reference_path(task_name: str, folder: Path) -> Path:
    """Return the file of the references of a task."""
    return folder / task_name / "references.json"


def reference_key(task_name: str, scale: FieldScale) -> dict[str, Any]:
    """Return everything the references of a task depend on."""
    return {"task": task_name, "embedded": scale.embedded, "episodes": scale.episodes, "format": RESULT_FORMAT}


def read_references(task_name: str, scale: FieldScale, folder: Path) -> dict[str, Any] | None:
    """Return the stored references of a task; None if there are none that match the settings."""
    return read_result(reference_path(task_name, folder), reference_key(task_name, scale))


def _batches(data: FieldData, split: str, name: str, count: int) -> Iterator[FieldBatch]:
    """Yield the first ``count`` episodes of an evaluation set, in the batches in which models are evaluated."""
    stream = data.split(split)
    first = data.eval_sets.index(name) * stream.size
    for start in range(first, first + count, BATCH_SIZE):
        yield stream.__getitems__(list(range(start, start + BATCH_SIZE)))


def _choice_error(task: FieldTask, data: FieldData, name: str, predict: Predict) -> float:
    return float(np.mean([_error(task, batch, predict) for batch in _batches(data, "val", name, CHOICE_EPISODES)]))


def _error(task: FieldTask, batch: FieldBatch, predict: Predict) -> float:
    """Return the mean error of a batch."""
    errors = []
    for x, y, queries, truth in zip(*(part.numpy() for part in batch[:4]), strict=True):
        prediction = predict(x, y, queries).reshape(truth.shape)
        if task.tail is None:
            errors.append(np.square(prediction - truth).mean())
        else:
            errors.append(-np.log(np.maximum((prediction * truth).sum(axis=-1), LEAST_PROBABILITY)).mean())
    return float(np.mean(errors))
