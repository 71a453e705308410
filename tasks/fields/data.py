"""Base class of data modules that generate episodes."""

import os
from abc import abstractmethod
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
from torch.utils.data import DataLoader

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.split_data import SplitData
from fna_lightning.tasks.data.splits import SPLITS
from fna_lightning.tasks.fields.codec import FieldCodec
from fna_lightning.tasks.fields.episodes import (
    EpisodeArrays,
    EpisodeConfig,
    EpisodeStream,
    EvalSet,
    FieldBatch,
    TrainingSet,
    collate_episodes,
)
from fna_lightning.training.samplers import RankBatchSampler


class StreamBatchSampler(RankBatchSampler):
    """Batches of consecutive episodes of a stream; each epoch continues where the previous one ended."""

    def __iter__(self) -> Iterator[list[int]]:
        first = self.epoch * self.num_examples
        for batch in super().__iter__():
            yield [first + index for index in batch]


class FieldData(SplitData[EpisodeStream]):
    """Episodes of context points and query points, generated while a model trains.

    Training, validation and test have separate random seeds. The validation and test episodes are always the same.

    Args:
        episodes: numbers of points and of episodes.
        batch_size: episodes per batch and process.
        seed: random seed of the training episodes; None takes ``seed_everything``.
    """

    # Ways to choose the points; the first one is used if the data module has no parameter for it.
    surveys: tuple[str, ...] = ("even",)

    def __init__(
        self,
        *,
        episodes: EpisodeConfig = EpisodeConfig(),  # noqa: B008 - frozen
        batch_size: int = 16,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        if episodes.train_size < batch_size:
            raise ValueError(
                f"train_size ({episodes.train_size}) must be at least batch_size ({batch_size}); increase train_size"
            )
        self.episodes = episodes
        self.batch_size = batch_size
        self.seed = seed
        self.survey = self.surveys[0]
        self.eval_surveys: tuple[str, ...] = (self.survey,)

    @property
    @abstractmethod
    def codec(self) -> FieldCodec:
        """The codec that is stored in checkpoints."""

    @abstractmethod
    def generate(self, rng: np.random.Generator, count: int, context: int, survey: str, split: str) -> EpisodeArrays:
        """Return ``count`` episodes of a split, which depend on the random generator alone.

        Args:
            rng: the random generator.
            count: number of episodes.
            context: number of context points.
            survey: how the points are chosen, one of ``surveys``.
            split: "train", "val" or "test".
        """

    @property
    def coordinate_dim(self) -> int:
        return len(self.codec.coordinates)

    @property
    def value_dim(self) -> int:
        return len(self.codec.values)

    @property
    def eval_sets(self) -> list[str]:
        """Names of the evaluation sets, such as "n64", or "n64_even" for another survey than that of training."""
        return [evaluation.name for evaluation in self._eval_sets()]

    def choose_surveys(self, survey: str, eval_surveys: list[str] | None) -> None:
        """Check and set the survey of training and those of the evaluation sets."""
        self.survey = survey
        self.eval_surveys = (survey,) if eval_surveys is None else tuple(eval_surveys)
        for name in (survey, *self.eval_surveys):
            if name not in self.surveys:
                raise ValueError(f"unknown survey {name!r}; choose one of {', '.join(self.surveys)}")

    def split(self, name: str) -> EpisodeStream:
        number = SPLITS.index(name)
        generate = partial(self.generate, split=name)
        if name == "train":
            # Lightning sets this variable to the value of seed_everything.
            seed = int(os.environ.get("PL_GLOBAL_SEED", "0")) if self.seed is None else self.seed
            training = TrainingSet(self.episodes.draw_context, self.survey)
            return EpisodeStream(generate, [number, seed], size=self.episodes.train_size, sets=training)
        size = self.episodes.val_size if name == "val" else self.episodes.test_size
        return EpisodeStream(generate, [number], size=size, sets=self._eval_sets())

    def predict_dataloader(self) -> DataLoader[Any]:
        raise UsageError(
            f"`predict` does not work with {type(self).__name__}; use `fna-lightning map CKPT FILE` to predict a field "
            "from the points in a file, or `fna-lightning test` to evaluate a model"
        )

    def _eval_sets(self) -> tuple[EvalSet, ...]:
        return tuple(
            EvalSet(f"n{context}" if survey == self.survey else f"n{context}_{survey}", context, survey)
            for survey in self.eval_surveys
            for context in self.episodes.eval_context
        )

    def _batches(self, examples: EpisodeStream, **share: Any) -> RankBatchSampler:
        training = share["shuffle"]
        sampler = StreamBatchSampler if training else RankBatchSampler
        # The episodes are random, so their order need not be.
        return sampler(len(examples), self.batch_size, drop_last=training, **{**share, "shuffle": False})

    def _join(self) -> Callable[[Any], FieldBatch]:
        return collate_episodes
