"""ResumableDataLoader: an epoch that continues in the middle has the batches and random numbers of a whole epoch."""

import pytest
import torch
from torch.utils.data import DataLoader, Dataset

from fna_lightning.checkpoints.exact.dataloader import EpochPosition, ResumableDataLoader, ResumableSampler
from fna_lightning.checkpoints.exact.rng import random_state
from fna_lightning.training.samplers import RankBatchSampler


class Noisy(Dataset[tuple[int, float]]):
    """Examples with a random number, as augmentation draws it."""

    def __init__(self, count: int = 20) -> None:
        self.count = count
        self.loaded = 0

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> tuple[int, float]:
        self.loaded += 1
        return index, float(torch.rand(()))


def noisy_loader(num_workers: int = 0, data: Noisy | None = None) -> DataLoader:
    return DataLoader(data or Noisy(), 3, shuffle=True, num_workers=num_workers, collate_fn=list)


def sampled_loader(batch_size: int, world_size: int = 1, rank: int = 0) -> DataLoader:
    sampler = RankBatchSampler(20, batch_size, shuffle=True, drop_last=False, seed=1, rank=rank, world_size=world_size)
    return DataLoader(Noisy(), batch_sampler=sampler, collate_fn=list)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("batches", [0, 1, 4, 6])
def test_the_rest_of_an_epoch_is_exact(batches: int, num_workers: int) -> None:
    torch.manual_seed(3)
    states = []
    loader = ResumableDataLoader(noisy_loader(num_workers), lambda: states.append(random_state()))
    # a step of the model draws a random number as well
    whole = [(batch, float(torch.rand(()))) for batch in loader]
    torch.manual_seed(99)
    resumed = ResumableDataLoader(noisy_loader(num_workers), lambda: None)
    resumed.resume_at = EpochPosition(batches, loader.epoch_start, states[batches])
    assert [(batch, float(torch.rand(()))) for batch in resumed] == whole[batches:]
    # the next epoch is a whole one
    assert len(list(resumed)) == len(whole)


def test_skipped_batches_are_not_loaded_in_the_process_itself() -> None:
    data = Noisy()
    loader = ResumableDataLoader(noisy_loader(data=data), lambda: None)
    loader.resume_at = EpochPosition(5, random_state(), None)
    assert len(list(loader)) == 2
    assert data.loaded == 20 - 5 * 3


def test_the_random_state_stays_without_a_state_to_restore() -> None:
    loader = ResumableDataLoader(noisy_loader(), lambda: None)
    start = random_state()
    torch.manual_seed(5)
    expected = torch.rand(())
    torch.manual_seed(5)
    loader.resume_at = EpochPosition(2, start, None)
    iterator = iter(loader)
    loader.between_batches = lambda: numbers.append(torch.rand(()))
    numbers: list[torch.Tensor] = []
    next(iterator)
    assert numbers == [expected]


@pytest.mark.parametrize("num_workers", [0, 1])
def test_an_iterator_draws_one_random_number(num_workers: int) -> None:
    torch.manual_seed(4)
    torch.empty((), dtype=torch.int64).random_()
    expected = torch.get_rng_state()
    torch.manual_seed(4)
    loader = DataLoader(range(4), num_workers=num_workers, persistent_workers=num_workers > 0)
    resumable = ResumableDataLoader(loader, lambda: None)
    # persistent workers are started once, so the second iterator draws less by itself
    for _ in range(2):
        torch.manual_seed(4)
        next(iter(resumable))
        assert torch.equal(torch.get_rng_state(), expected)


def test_the_iterator_is_made_when_the_first_batch_is_requested() -> None:
    loader = sampled_loader(4)
    iterator = iter(ResumableDataLoader(loader, lambda: None))
    # Lightning sets the epoch after it has requested the iterator.
    loader.batch_sampler.set_epoch(3)
    assert [index for index, _ in next(iterator)] == next(iter(loader.batch_sampler))


def test_attributes_are_those_of_the_loader() -> None:
    loader = noisy_loader()
    resumable = ResumableDataLoader(loader, lambda: None)
    assert resumable.dataset is loader.dataset
    assert resumable.batch_size == 3
    assert len(resumable) == 7
    assert resumable.state_dict() == {}


def test_another_batch_size_and_world_size_use_the_unused_examples() -> None:
    ranks = [ResumableDataLoader(sampled_loader(3, world_size=2, rank=rank), lambda: None) for rank in range(2)]
    used: list[int] = []
    for rank in ranks:
        assert isinstance(rank.batch_sampler, ResumableSampler)
        rank.batch_sampler.set_epoch(1)
        used += [index for batch in list(rank)[:2] for index, _ in batch]
    state = ranks[0].used_data(2, 2)
    resumed = ResumableDataLoader(sampled_loader(5), lambda: None)
    done, skipped = resumed.continue_after(state, 2, 1, 1)
    # 12 of 20 examples are used, so two batches of at most five remain of four
    assert (done, skipped) == (2, 0)
    rest = [index for batch in resumed for index, _ in batch]
    assert sorted(used + rest) == list(range(20))


def test_a_loader_without_a_resumable_sampler_counts_examples() -> None:
    loader = ResumableDataLoader(noisy_loader(), lambda: None)
    used = loader.used_data(4, 2)
    assert used == {"examples": 24}
    other = ResumableDataLoader(DataLoader(Noisy(100), 8), lambda: None)
    assert other.continue_after(used, 4, 0, 1) == (3, 3)
    # an epoch has at least one more batch
    assert loader.continue_after({"examples": 99}, 4, 0, 1) == (6, 6)


def test_a_loader_without_a_length_counts_batches() -> None:
    loader = ResumableDataLoader((number for number in range(9)), lambda: None)
    assert loader.used_data(4, 1) == {"examples": None}
    assert loader.continue_after({"examples": None}, 4, 0, 1) == (4, 4)
