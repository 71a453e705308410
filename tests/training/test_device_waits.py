"""A training step never waits for the device, in any task, with all default callbacks."""

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from fna_lightning.attention import Fractional
from fna_lightning.callbacks import AttentionGraph, FiniteLoss
from fna_lightning.callbacks import finite_loss as finite_loss_module
from fna_lightning.callbacks.defaults import run_callbacks
from fna_lightning.config.instantiate import Experiment, from_config
from fna_lightning.errors import UsageError
from fna_lightning.nn import dropout as dropout_layer
from fna_lightning.tasks.data.metrics import WeightedMean
from fna_lightning.training.cli import RunContext
from fna_lightning.training.csv_logger import MetricsCSVLogger
from fna_lightning.training.dataloading import RunData

from helpers.device_waits import FAKE_DEVICE, CopyRecorder, ReadRecorder
from helpers.linear_task import LinearTask, PlainData, fit, new_trainer

TASKS = {
    "text": ["reviews_fna.yaml", "data.train_size=64", "data.eval_size=8", "data.batch_size=4"],
    "image": ["digits_fna.yaml", "data.batch_size=8"],
    "translation": ["numbers_fna.yaml", "data.train_size=64", "data.eval_size=8", "data.batch_tokens=64"],
    "fields": ["terrain_fna.yaml", "data.batch_size=4"],
}
VARIANTS = {
    "learned": [*TASKS["text"], 'model.attention.learn=["alpha","kappa"]'],
    "estimated dimension": [*TASKS["text"], "model.attention.intrinsic_dim=auto"],
    "kappa per head": ["digits_fna.yaml", "model.attention.kappa=[1.0,2.0,3.0]", "model.vit.encoder.num_heads=3"],
    "dot product": ["digits_dp.yaml"],
    "mixed context sizes": ["terrain_fna.yaml", "data.episodes.context=[16,64]", "data.batch_size=40"],
    "augmentations": ["cifar10_hour_fna.yaml"],
}


def experiment(name: str, *overrides: str) -> Experiment:
    result = from_config(name, list(overrides))
    result.data.prepare_data()
    result.data.setup("fit")
    return result


def on_fake_device(batch: Any) -> Any:
    return type(batch)(*(part.to(FAKE_DEVICE) if isinstance(part, Tensor) else part for part in batch))


@pytest.mark.usefixtures("shipped_environment")
@pytest.mark.parametrize("name", [*TASKS, *VARIANTS])
def test_a_step_reads_no_value_from_the_device(name: str) -> None:
    trained = experiment(*(TASKS | VARIANTS)[name])
    batch = on_fake_device(next(iter(trained.data.train_dataloader())))
    task = trained.task.to(FAKE_DEVICE)
    # Fused optimizers refuse the fake device; on CUDA they do not wait either.
    optimizer = torch.optim.AdamW(task.parameters())
    # The first call of an attention with a kappa for each head copies them to the device.
    task.loss(batch, "train")
    with CopyRecorder() as recorder:
        loss = task.loss(batch, "train")
        assert isinstance(task.loss_weight(batch), int)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(task.parameters(), 1.0)
        optimizer.step()
    assert loss.device == FAKE_DEVICE
    assert recorder.copies == []


def test_the_recorders_find_what_they_should() -> None:
    with pytest.raises(RuntimeError):
        torch.ones(2, device=FAKE_DEVICE).sum().item()
    with pytest.raises(NotImplementedError):
        torch.ones(2, device=FAKE_DEVICE).cpu()
    with CopyRecorder() as copies:
        torch.ones(2).to(FAKE_DEVICE)
    assert len(copies.copies) == 1
    with ReadRecorder() as recorder:
        values = torch.ones(3)
        values[values > 0.0]
        bool(values.isfinite().all())
    assert [read.split()[0] for read in recorder.reads] == ["aten.index.Tensor", "aten._local_scalar_dense.default"]


class Window(L.Callback):
    """Turns a recorder on from the start of a batch to its end."""

    def __init__(self, recorder: ReadRecorder, steps: range) -> None:
        self.recorder = recorder
        self.steps = steps

    def on_train_batch_start(self, trainer: L.Trainer, *args: Any) -> None:
        self.recorder.on = trainer.global_step in self.steps

    def on_train_batch_end(self, *args: Any) -> None:
        self.recorder.on = False


@pytest.mark.usefixtures("shipped_environment")
@pytest.mark.parametrize("name", TASKS)
def test_callbacks_read_no_value_at_a_step_that_is_not_logged(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what runs on a GPU: PyTorch's dropout, an attention kernel in PyTorch, and a loss that is not read at every step
    monkeypatch.setattr(dropout_layer, "usable", lambda x: False)
    monkeypatch.setattr(finite_loss_module, "waits_for_device", lambda loss: True)
    trained = experiment(*TASKS[name], "model.attention.kernel=chunked")
    recorder = ReadRecorder()
    recorder.on = False
    context = RunContext("fit", tmp_path, 0, trained.task, checkpointing=True, model_summary=False)
    callbacks = run_callbacks([AttentionGraph(figures=False)], context)
    callbacks = [Window(recorder, range(2, 5)), *callbacks]
    trainer = L.Trainer(
        accelerator="cpu",
        devices=1,
        max_steps=6,
        logger=MetricsCSVLogger(tmp_path),
        log_every_n_steps=50,
        callbacks=callbacks,
        default_root_dir=tmp_path,
        gradient_clip_val=1.0,
    )
    # Lightning puts checkpoint callbacks last, and a window must end after them.
    trainer.callbacks.append(Window(recorder, range(0)))
    with recorder:
        trainer.fit(trained.task, datamodule=RunData(trained.data), weights_only=True)
    assert trainer.global_step == 6
    # Adam keeps its step on the CPU
    assert [read for read in recorder.reads if "optim" not in read] == []


def test_a_late_check_names_the_first_bad_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Overflow(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, pl_module: LinearTask, *args: Any) -> None:
            if trainer.global_step == 3:
                pl_module.linear.weight.data.fill_(torch.nan)

    monkeypatch.setattr(finite_loss_module, "waits_for_device", lambda loss: True)
    with pytest.raises(
        UsageError,
        match=r"the loss was not finite at step 3, and training stops at step 4; --trainer.log_every_n_steps=1 stops",
    ):
        fit(new_trainer(tmp_path, Overflow(), FiniteLoss(), log_every_n_steps=5))
    with pytest.raises(UsageError, match="not finite at step 3, and training stops at step 6"):
        fit(new_trainer(tmp_path, Overflow(), FiniteLoss(), log_every_n_steps=50))
    with pytest.raises(UsageError, match=r"the loss is nan at step 3 .* the weights linear.weight are not finite"):
        fit(new_trainer(tmp_path, Overflow(), FiniteLoss(), log_every_n_steps=1))


@pytest.mark.usefixtures("shipped_environment")
@pytest.mark.parametrize("name", TASKS)
@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_batches_for_a_gpu_are_in_pinned_memory(name: str, device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    trained = experiment(*TASKS[name])
    trained.data.trainer = L.Trainer(accelerator="cpu", devices=1, logger=False)
    strategy = trained.data.trainer.strategy
    monkeypatch.setattr(type(strategy), "root_device", property(lambda self: torch.device(device)))
    for method in ("train_dataloader", "val_dataloader", "test_dataloader"):
        loader = getattr(RunData(trained.data), method)()
        assert isinstance(loader, DataLoader)
        assert loader.pin_memory == (device == "cuda")


def test_a_sharded_loader_of_a_plug_in_keeps_its_pinned_memory() -> None:
    class PinnedData(PlainData):
        def val_dataloader(self) -> DataLoader[Any]:
            return DataLoader(super().val_dataloader().dataset, 2, pin_memory=True)

    data = PinnedData()
    data.trainer = L.Trainer(accelerator="cpu", devices=1, logger=False, limit_val_batches=1)
    assert RunData(data).val_dataloader().pin_memory


def test_weighted_mean() -> None:
    mean = WeightedMean()
    mean.update(torch.tensor(1.0), 3)
    mean.update(torch.tensor(5.0), 1)
    assert mean.compute() == 2.0
    mean.update(torch.tensor(torch.nan), 1)
    assert mean.compute().isnan()


def test_kappa_of_each_head_is_copied_once_and_can_be_trained_after_inference() -> None:
    attention = Fractional(kappa=[1.5, 2.5])
    q = torch.randn(1, 2, 3, 4)
    with torch.inference_mode():
        attention(q, q, q)
    q.requires_grad_()
    assert attention.scale(q) is attention.scale(q)
    attention(q, q, q).sum().backward()
    assert q.grad is not None
