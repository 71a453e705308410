"""A training loader that can continue an epoch in the middle."""

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
class EpochPosition:
    """A position between two batches of an epoch.

    Attributes:
        batches: number of batches before it, which are skipped.
        epoch_start: state of the random generators before the first batch of the epoch.
        now: their state at this position; None leaves them as they are.
    """

    batches: int
    epoch_start: dict[str, Any]
    now: dict[str, Any] | None


class ResumableDataLoader:
    """Wraps a loader so that an epoch can be continued with the same order and the same random numbers.

    The iterator of the wrapped loader is created when the first batch is requested. Lightning requests an iterator
    earlier, before it has told the sampler the epoch.

    Args:
        loader: source of the batches.
        between_batches: called before each batch is fetched, when the previous step is complete and the next one has
            not begun.
    """

    def __init__(self, loader: Any, between_batches: Callable[[], None]) -> None:
        self.loader = loader
        self.between_batches = between_batches
        self.resume_at: EpochPosition | None = None
        self.epoch_start = random_state()

    def __getattr__(self, name: str) -> Any:
        # The trainer and callbacks read the samplers, the data set and the collate function of a loader.
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    def state_dict(self) -> dict[str, Any]:
        """Return an empty dictionary, because ``state.collect_state`` saves the position.

        Lightning takes a loader with this method for one that can be resumed.
        """
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Do nothing, see ``state_dict``."""

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
        """Prepare for the rest of an interrupted epoch, possibly with another batch size or number of processes.

        Args:
            used: result of ``used_data``.
            batches: number of batches that were done.
            epoch: number of the epoch.
            world_size: current number of processes.

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
        # A loader without a length raises TypeError.
        with contextlib.suppress(TypeError):
            # Lightning ends an epoch only after a batch, so at least one remains.
            batches = min(batches, len(self.loader) - 1)
        return batches, batches

    def __iter__(self) -> Iterator[Any]:
        position, self.resume_at = self.resume_at, None
        now = random_state()
        if position is not None:
            set_random_state(position.epoch_start)
        self.epoch_start = random_state()
        iterator = self._new_iterator()
        if position is not None and position.batches:
            skip_batches(self.loader, iterator, position.batches)
            set_random_state(position.now or now)
        while True:
            self.between_batches()
            try:
                batch = next(iterator)
            except StopIteration:
                return
            yield batch

    def _new_iterator(self) -> Iterator[Any]:
        """Return a new iterator; it draws exactly one random number, whether or not it starts worker processes."""
        before = torch.get_rng_state()
        torch.empty((), dtype=torch.int64).random_()
        after = torch.get_rng_state()
        torch.set_rng_state(before)
        iterator = iter(self.loader)
        torch.set_rng_state(after)
        return iterator


def skip_batches(loader: Any, iterator: Iterator[Any], count: int) -> None:
    """Skip ``count`` batches. Without worker processes only their indices are drawn; no example is loaded."""
    draw_indices = getattr(iterator, "_next_index", None)
    in_process = isinstance(loader, DataLoader) and loader.num_workers == 0
    for _ in range(count):
        if in_process and draw_indices is not None:
            draw_indices()
        else:
            next(iterator)
