"""A task and a plain data module that train in milliseconds, without the command line."""

from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from torchmetrics import MeanAbsoluteError, MetricCollection

from fna_lightning.checkpoints.atomic_io import AtomicCheckpointIO
from fna_lightning.task import Task
from fna_lightning.training.dataloading import RunData

NUM_EXAMPLES = 22
BATCH_SIZE = 4


class LinearTask(Task):
    """Linear regression with dropout, so that training draws random numbers."""

    def __init__(self) -> None:
        super().__init__(MetricCollection({"error": MeanAbsoluteError()}))
        self.dropout = nn.Dropout(0.5)
        self.linear = nn.Linear(3, 1)

    def loss(self, batch: Any, stage: str) -> Tensor:
        inputs, targets = batch
        predictions = self.linear(self.dropout(inputs)).squeeze(-1)
        self.stage_metrics(stage).update(predictions.detach(), targets)
        return nn.functional.mse_loss(predictions, targets)


class NoisyExamples(Dataset[tuple[Tensor, Tensor]]):
    """Examples with random noise, as augmentation adds it; the order and the noise depend on the random generators."""

    def __init__(self, num_examples: int) -> None:
        self.inputs = torch.arange(3.0 * num_examples).view(-1, 3) / num_examples

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.inputs[index] + 0.1 * torch.rand(3), self.inputs[index].sum()


class PlainData(L.LightningDataModule):
    """A data module of a plug-in: it knows neither ranks nor resuming, and has no test split."""

    language = "English"

    def __init__(self, num_workers: int = 0) -> None:
        super().__init__()
        self.num_workers = num_workers

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(NoisyExamples(NUM_EXAMPLES), BATCH_SIZE, shuffle=True, num_workers=self.num_workers)

    def val_dataloader(self) -> DataLoader[Any]:
        return DataLoader(NoisyExamples(5), BATCH_SIZE)


def new_trainer(folder: Path, *callbacks: L.Callback, **settings: Any) -> L.Trainer:
    """Return a quiet trainer for two epochs on the CPU."""
    defaults: dict[str, Any] = {"max_epochs": 2, "num_sanity_val_steps": 0, "log_every_n_steps": 1}
    return L.Trainer(
        accelerator="cpu",
        devices=1,
        logger=False,
        callbacks=list(callbacks),
        plugins=[AtomicCheckpointIO()],
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
        **defaults | settings,
    )


def fit(trainer: L.Trainer, checkpoint: Path | None = None, data: L.LightningDataModule | None = None) -> LinearTask:
    """Train a new task from the same seed, or resume it, and return it."""
    L.seed_everything(1, verbose=False)
    task = LinearTask()
    trainer.fit(task, datamodule=RunData(data or PlainData()), ckpt_path=checkpoint, weights_only=True)
    return task
