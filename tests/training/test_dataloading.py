"""RunData and shard_loader: the loaders of any data module, sharded over processes and resumable."""

import pickle
from types import SimpleNamespace
from typing import Any

import lightning as L
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch.utils.data import DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from fna_lightning.checkpoints.exact.dataloader import ResumableDataLoader
from fna_lightning.errors import UsageError
from fna_lightning.training.dataloading import RunData, count_examples, sample_loader, shard_loader
from fna_lightning.training.sampled_batches import SampledBatchSampler
from fna_lightning.training.samplers import RankBatchSampler

from helpers.linear_task import NUM_EXAMPLES, PlainData


class Boundary(L.Callback):
    """Counts the positions between training batches."""

    def __init__(self) -> None:
        self.calls = 0

    def on_batch_boundary(self, trainer: L.Trainer) -> None:
        self.calls += 1


def run_data(data: L.LightningDataModule, *callbacks: L.Callback, rank: int = 0, world_size: int = 1) -> RunData:
    """Return the data of a run as the trainer of one process uses it."""
    run = RunData(data)
    trainer: Any = SimpleNamespace(callbacks=list(callbacks), global_rank=rank, world_size=world_size)
    run.trainer = trainer
    return run


def test_run_data_has_the_attributes_of_the_data_module() -> None:
    data = PlainData(num_workers=3)
    run = run_data(data)
    assert run.language == "English"
    assert run.num_workers == 3
    assert run.trainer is data.trainer
    assert isinstance(run, PlainData)
    assert isinstance(run, L.LightningDataModule)
    assert run.__class__.__qualname__ == "PlainData"
    with pytest.raises(AttributeError, match="no attribute 'codec'"):
        _ = run.codec


def test_no_method_of_the_data_module_is_replaced() -> None:
    data = PlainData()
    run = run_data(data, Boundary(), world_size=2)
    run.train_dataloader()
    assert not [name for name in vars(data) if name.endswith("_dataloader")]
    assert type(data.train_dataloader()) is DataLoader


def test_lightning_sees_which_loaders_the_data_module_defines() -> None:
    run = run_data(PlainData())
    assert is_overridden("train_dataloader", run)
    assert is_overridden("val_dataloader", run)
    assert not is_overridden("test_dataloader", run)
    assert not is_overridden("prepare_data", run)


def test_a_pickled_copy_is_run_data() -> None:
    copy = pickle.loads(pickle.dumps(RunData(PlainData(num_workers=3))))
    assert type(copy) is RunData
    assert copy.num_workers == 3


def test_one_process_keeps_the_loader_without_a_callback_between_batches() -> None:
    run = run_data(PlainData())
    assert type(run.train_dataloader()) is DataLoader
    assert type(run.val_dataloader()) is DataLoader


def test_the_training_loader_calls_callbacks_between_batches() -> None:
    boundary = Boundary()
    run = run_data(PlainData(), boundary, L.Callback())
    assert type(run.val_dataloader()) is DataLoader
    loader = run.train_dataloader()
    assert isinstance(loader, ResumableDataLoader)
    # Called before each batch and once after the last one.
    assert boundary.calls == 0
    assert len(list(loader)) == len(loader) == 6
    assert boundary.calls == 7


def test_processes_share_the_examples_of_a_plain_data_module(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "7")
    loaders = [run_data(PlainData(), rank=rank, world_size=2).train_dataloader() for rank in range(2)]
    indices = [index for loader in loaders for batch in loader.batch_sampler for index in batch]
    assert sorted(indices) == list(range(NUM_EXAMPLES))
    assert all(isinstance(loader.batch_sampler, RankBatchSampler) for loader in loaders)
    assert [loader.batch_sampler.seed for loader in loaders] == [7, 7]


def test_several_training_loaders_cannot_be_resumed() -> None:
    class Two(PlainData):
        def train_dataloader(self) -> Any:
            return [super().train_dataloader()] * 2

    assert len(run_data(Two()).train_dataloader()) == 2
    with pytest.raises(UsageError, match=r"Two\.train_dataloader returns 2 loaders, but only one can be resumed"):
        run_data(Two(), Boundary()).train_dataloader()


@given(
    count=st.integers(2, 200),
    batch_size=st.integers(1, 16),
    world_size=st.integers(2, 5),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_a_plain_loader_is_sharded(
    count: int, batch_size: int, world_size: int, shuffle: bool, drop_last: bool
) -> None:
    assume(count >= world_size)
    data = TensorDataset(torch.arange(count))
    loaders = [
        shard_loader(
            DataLoader(data, batch_size, shuffle=shuffle, drop_last=drop_last),
            "the loader",
            seed=3,
            rank=rank,
            world_size=world_size,
        )
        for rank in range(world_size)
    ]
    batches = [[batch[0].tolist() for batch in loader] for loader in loaders]
    assert [len(loader) for loader in loaders] == [len(rank_batches) for rank_batches in batches]
    used = [index for rank_batches in batches for batch in rank_batches for index in batch]
    assert len(set(used)) == len(used)
    if not shuffle and not drop_last:
        assert sorted(used) == list(range(count))
    if shuffle:
        assert len({len(rank_batches) for rank_batches in batches}) == 1
        assert count - len(used) < (batch_size * world_size if drop_last else world_size)


def test_lists_and_dictionaries_of_loaders_are_sharded() -> None:
    loader = DataLoader(TensorDataset(torch.arange(8)), 2)
    sharded = shard_loader({"a": [loader], "b": loader}, "the loader", seed=0, rank=1, world_size=2)
    assert [batch[0].tolist() for batch in sharded["a"][0]] == [[1, 3], [5, 7]]
    assert [batch[0].tolist() for batch in sharded["b"]] == [[1, 3], [5, 7]]


class Iterable(IterableDataset):
    def __iter__(self) -> object:
        return iter(range(5))


@pytest.mark.parametrize(
    ("loader", "message"),
    [
        (DataLoader(Iterable()), "an IterableDataset cannot be sharded from outside"),
        (DataLoader(range(9), sampler=WeightedRandomSampler([1.0] * 9, 9)), "its sampler cannot be sharded"),
        (DataLoader(range(1)), "has 1 examples for 2 processes, but every process needs at least one"),
    ],
)
def test_a_loader_that_cannot_be_sharded_is_refused(loader: DataLoader, message: str) -> None:
    with pytest.raises(UsageError, match=f"MyData.train_dataloader .*{message}"):
        shard_loader(loader, "MyData.train_dataloader", seed=0, rank=0, world_size=2)


class OrderedData(PlainData):
    """Twenty examples of each of two classes, in the order of their classes."""

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(TensorDataset(torch.arange(40)), 4)

    test_dataloader = predict_dataloader = val_dataloader


def limited_data(**limits: Any) -> RunData:
    """Return the data of a run whose trainer has these limits."""
    run = run_data(OrderedData())
    run.trainer.__dict__.update({"limit_val_batches": 1.0, "limit_test_batches": 1.0, **limits})
    return run


def numbers(loader: Any, batches: int) -> list[int]:
    """Return the examples of the first batches."""
    return [number for _, (batch,) in zip(range(batches), loader, strict=False) for number in batch.tolist()]


@pytest.mark.parametrize("limit", [3, 0.3])
@pytest.mark.parametrize("split", ["val", "test"])
def test_a_limited_evaluation_is_a_fixed_random_sample(split: str, limit: float) -> None:
    run = limited_data(**{f"limit_{split}_batches": limit})
    loader = getattr(run, f"{split}_dataloader")()
    # the length is that of the whole split, because Lightning computes a share from it
    assert len(loader) == 10
    torch_state = torch.get_rng_state()
    sample = numbers(loader, 3)
    assert sample == numbers(loader, 3) != list(range(12))
    assert 3 <= sum(number < 20 for number in sample) <= 9
    assert sorted(numbers(loader, 10)) == list(range(40))
    torch.set_rng_state(torch_state)
    assert numbers(getattr(run, f"{split}_dataloader")(), 3) == sample
    assert count_examples(loader, 3) == (12, 40)


@pytest.mark.parametrize("limit", [1.0, 10, 11, 0])
def test_an_evaluation_that_is_not_limited_keeps_its_loader(limit: float) -> None:
    loader = limited_data(limit_val_batches=limit).val_dataloader()
    assert not isinstance(loader.batch_sampler, SampledBatchSampler)
    assert numbers(loader, 10) == list(range(40))


def test_a_limited_prediction_keeps_the_order_of_the_data() -> None:
    assert numbers(limited_data(limit_predict_batches=3).predict_dataloader(), 3) == list(range(12))


def test_a_loader_with_another_sampler_is_not_sampled() -> None:
    loader = DataLoader(TensorDataset(torch.arange(8)), sampler=WeightedRandomSampler([1.0] * 8, 8), batch_size=2)
    assert sample_loader(loader, 2) is loader
    assert sample_loader([loader], 2) == [loader]
