"""A training loader that can take up an epoch where another process left it."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from torch.utils.data import DataLoader

from fna_lightning.checkpoints.exact.rng import random_state, set_random_state


@runtime_checkable
class ResumableSampler(Protocol):
    """A batch sampler that can continue an epoch in the middle, such as ``training.samplers.EpochBatchSampler``."""

    def set_epoch(self, epoch: int) -> None:
        """Select the random order of this epoch."""

    def progress(self, batches: int) -> list[dict[str, int]]:
        """Return the state of the epoch after ``batches`` batches."""

    def resume(self, parts: list[dict[str, int]]) -> tuple[int, int]:
        """Continue from ``parts``; return the number of batches done and the number to skip."""


@dataclass(frozen=True)
class Position:
    """A place between two batches of an epoch."""

    batches: int  # that came before it and are skipped
    epoch_start: dict[str, Any]  # the random generators before the first batch of the epoch
    now: dict[str, Any] | None  # and here; None leaves them where the process that resumes has brought them


class ResumableDataLoader:
    """Wraps any loader; its order and its random numbers are those of the run that is continued.

    The iterator is made when the first batch is asked for, not before: Lightning makes one too early, when the epoch
    is not yet announced to the sampler.

    Args:
        loader: where the batches come from.
        between_batches: called before each batch is fetched; the one place where a step is over and the next not begun.
    """

    def __init__(self, loader: Any, between_batches: Callable[[], None]) -> None:
        self.loader = loader
        self.between_batches = between_batches
        self.resume_at: Position | None = None
        self.epoch_start = random_state()

    def __getattr__(self, name: str) -> Any:
        # samplers, data set, collate function: what the trainer and callbacks ask of a loader
        return getattr(self.loader, name)

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the place is kept by ``LastCheckpoint``. That this exists tells Lightning it can be resumed."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing, see ``state_dict``."""

    def __len__(self) -> int:
        return len(self.loader)

    def used_data(self, batches: int, world_size: int) -> dict[str, Any]:
        """Return which data of this epoch are used after ``batches`` batches, for ``continue_after``."""
        sampler = getattr(self.loader, "batch_sampler", None)
        if isinstance(sampler, ResumableSampler):
            return {"parts": sampler.progress(batches)}
        size = getattr(self.loader, "batch_size", None)
        return {"examples": batches * size * world_size if isinstance(size, int) else None}

    def continue_after(self, used: dict[str, Any], batches: int, epoch: int, world_size: int) -> tuple[int, int]:
        """Prepare for the rest of an epoch that other processes have begun, maybe with another batch size.

        Args:
            used: from ``used_data``.
            batches: batches that were done.
            epoch: number of the epoch.
            world_size: number of processes now.

        Returns:
            The number of batches of this loader that count as done, and how many of them have to be skipped.
        """
        sampler = getattr(self.loader, "batch_sampler", None)
        if isinstance(sampler, ResumableSampler) and used.get("parts"):
            sampler.set_epoch(epoch)
            return sampler.resume(used["parts"])
        size = getattr(self.loader, "batch_size", None)
        if isinstance(size, int) and used.get("examples") is not None:
            batches = used["examples"] // (size * world_size)
        with contextlib.suppress(TypeError):  # a loader without a length
            # the epoch has to end with a batch
            batches = min(batches, len(self.loader) - 1)
        return batches, batches

    def __iter__(self) -> Iterator[Any]:
        position, self.resume_at = self.resume_at, None
        now = random_state()
        if position is not None:
            set_random_state(position.epoch_start)
        self.epoch_start = random_state()
        batches = self._begin()
        if position is not None and position.batches:
            skip(self.loader, batches, position.batches)
            set_random_state(position.now or now)
        while True:
            self.between_batches()
            try:
                batch = next(batches)
            except StopIteration:
                return
            yield batch

    def _begin(self) -> Iterator[Any]:
        """Return a new iterator; it costs one random number, whether or not worker processes are started for it."""
        before = torch.get_rng_state()
        torch.empty((), dtype=torch.int64).random_()
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        batches = iter(self.loader)
        torch.set_rng_state(after)
        return batches


def skip(loader: Any, batches: Iterator[Any], count: int) -> None:
    """Pass over ``count`` batches; without worker processes only their indices are drawn."""
    indices = getattr(batches, "_next_index", None)
    alone = isinstance(loader, DataLoader) and loader.num_workers == 0
    for _ in range(count):
        if alone and indices is not None:
            indices()
        else:
            next(batches)
