"""Episodes: context points and query points of one field, and endless streams of them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import Dataset

Points = NDArray[np.float32]
# Episodes are generated together in blocks of this size, whatever the batch size. The episodes of a block have the
# same number of context points.
BLOCK = 16


class FieldBatch(NamedTuple):
    """Context points and query points of several episodes."""

    context_x: Tensor  # (B, M, coordinate_dim)
    context_y: Tensor  # (B, M, value_dim)
    query_x: Tensor  # (B, N, coordinate_dim)
    query_y: Tensor  # (B, N, value_dim)
    lengths: Tensor  # (B,) number of context points; the rest of M is padding
    eval_set: Tensor  # (B,) index of the evaluation set; -1 in training
    padded: bool  # whether any context has padding; known here, because reading ``lengths`` would wait for a GPU

    def context_mask(self) -> Tensor | None:
        """Return the (B, 1, 1, M) mask of the context points that are not padding; None if there is no padding."""
        size = self.context_x.size(1)
        if not self.padded:
            return None
        return (torch.arange(size, device=self.lengths.device) < self.lengths[:, None])[:, None, None]

    def rows(self, rows: Tensor | list[int]) -> "FieldBatch":
        """Return the episodes at ``rows``."""
        parts = self._asdict().items()
        tensors: dict[str, Any] = {name: part[rows] for name, part in parts if isinstance(part, Tensor)}
        return self._replace(**tensors)


class EpisodeArrays(NamedTuple):
    """The points of ``count`` episodes with the same number of context points."""

    context_x: Points  # (count, M, coordinate_dim)
    context_y: Points  # (count, M, value_dim)
    query_x: Points  # (count, N, coordinate_dim)
    query_y: Points  # (count, N, value_dim)


@dataclass(frozen=True)
class EpisodeConfig:
    """Numbers of points and of episodes.

    Args:
        context: smallest and largest number of context points in training.
        log_uniform: draw the number of context points with the same probability in each octave instead of uniformly.
        queries: number of query points of an episode.
        eval_context: numbers of context points in validation and test; each has its own episodes and metrics.
        train_size: episodes of a training epoch; every epoch has new ones.
        val_size: validation episodes for each evaluation set.
        test_size: test episodes for each evaluation set.
    """

    context: tuple[int, int] = (64, 64)
    log_uniform: bool = False
    queries: int = 32
    eval_context: tuple[int, ...] = (16, 64, 256)
    train_size: int = 1600
    val_size: int = 64
    test_size: int = 512

    def __post_init__(self) -> None:
        lowest, highest = self.context
        if not 1 <= lowest <= highest:
            raise ValueError(
                f"context must be the smallest and the largest number of points, such as [16, 128], got "
                f"{list(self.context)}"
            )
        if not self.eval_context or min(self.eval_context) < 1 or len(set(self.eval_context)) < len(self.eval_context):
            raise ValueError(
                f"eval_context must be different numbers of points, such as [16, 64], got {list(self.eval_context)}"
            )
        for name in ("queries", "train_size", "val_size", "test_size"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")

    def draw_context(self, rng: np.random.Generator) -> int:
        """Return a random number of context points for training."""
        lowest, highest = self.context
        if self.log_uniform:
            return min(highest, int(lowest * ((highest + 1) / lowest) ** rng.random()))
        return int(rng.integers(lowest, highest + 1))


@dataclass(frozen=True)
class EvalSet:
    """Episodes on which a model is evaluated separately.

    Attributes:
        name: suffix of its metrics, as in ``test/mse_n64``.
        context: number of context points.
        survey: how the points are chosen.
    """

    name: str
    context: int
    survey: str


@dataclass(frozen=True)
class TrainingSet:
    """Episodes on which a model is trained.

    Attributes:
        draw_context: draws a number of context points.
        survey: how the points are chosen.
    """

    draw_context: Callable[[np.random.Generator], int]
    survey: str


# (random generator, number of episodes, number of context points, survey) -> episodes
Generate = Callable[[np.random.Generator, int, int, str], EpisodeArrays]


class EpisodeStream(Dataset[FieldBatch]):
    """A stream of generated episodes; episode i depends on the seed and on i alone.

    Args:
        generate: generates episodes.
        seed: seed of the stream: a list of numbers.
        size: number of training episodes, or of the episodes of each evaluation set. Training may continue beyond it.
        sets: the training set or the evaluation sets.
    """

    def __init__(
        self,
        generate: Generate,
        seed: list[int],
        *,
        size: int,
        sets: TrainingSet | tuple[EvalSet, ...],
    ) -> None:
        self.generate = generate
        self.seed = seed
        self.size = size
        self.sets = sets
        # A batch usually consists of whole blocks, and the last one may be continued by the next batch.
        self._block = lru_cache(maxsize=4)(self._generate_block)

    def __len__(self) -> int:
        return self.size if isinstance(self.sets, TrainingSet) else self.size * len(self.sets)

    def __getitem__(self, index: int) -> FieldBatch:
        return self.__getitems__([index])

    def __getitems__(self, indices: list[int]) -> FieldBatch:
        # PyTorch's DataLoader calls this method, so that a batch is generated at once.
        rows_of_block: dict[tuple[int, int], list[int]] = {}
        for index in indices:
            eval_set, episode = (-1, index) if isinstance(self.sets, TrainingSet) else divmod(index, self.size)
            rows_of_block.setdefault((eval_set, episode // BLOCK), []).append(episode % BLOCK)
        return collate_episodes([self._rows(key, rows) for key, rows in rows_of_block.items()])

    def _rows(self, key: tuple[int, int], rows: list[int]) -> FieldBatch:
        block = self._block(*key)
        if rows == list(range(BLOCK)):
            return block
        return block.rows(rows)

    def _generate_block(self, eval_set: int, block: int) -> FieldBatch:
        if isinstance(self.sets, TrainingSet):
            rng = np.random.default_rng([*self.seed, block])
            context, survey = self.sets.draw_context(rng), self.sets.survey
        else:
            context, survey = self.sets[eval_set].context, self.sets[eval_set].survey
            # The number of points is part of the seed, so that a list of other sizes does not change these episodes.
            rng = np.random.default_rng([*self.seed, context, block])
        arrays = self.generate(rng, BLOCK, context, survey)
        points = [torch.from_numpy(np.ascontiguousarray(array, dtype=np.float32)) for array in arrays]
        lengths, eval_sets = (torch.full((BLOCK,), number) for number in (context, eval_set))
        return FieldBatch(points[0], points[1], points[2], points[3], lengths, eval_sets, padded=False)


def collate_episodes(batches: FieldBatch | list[FieldBatch]) -> FieldBatch:
    """Return one batch, padded to the largest context; ``EpisodeStream.__getitems__`` has already collated it."""
    if isinstance(batches, FieldBatch):
        return batches
    if len(batches) == 1:
        return batches[0]
    size = max(batch.context_x.size(1) for batch in batches)
    padded = [_with_context_size(batch, size) for batch in batches]
    names = (name for name in FieldBatch._fields if name != "padded")
    tensors = {name: torch.cat([getattr(batch, name) for batch in padded]) for name in names}
    return padded[0]._replace(**tensors, padded=any(batch.padded for batch in padded))


def _with_context_size(batch: FieldBatch, size: int) -> FieldBatch:
    missing = size - batch.context_x.size(1)
    if not missing:
        return batch
    context_x, context_y = (F.pad(x, (0, 0, 0, missing)) for x in (batch.context_x, batch.context_y))
    return batch._replace(context_x=context_x, context_y=context_y, padded=True)
