"""Several processes: each example once, whoever wrote the data module."""

import os
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training.sharding import shared_loaders


class ShardData(L.Callback):
    """Shares the data of any data module among the processes of a run; one that does so itself is left alone.

    After an evaluation it counts: a metric over an example too many or too few is an error, not a result.
    """

    def __init__(self) -> None:
        self.seen = 0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        data: Any = getattr(trainer, "datamodule", None)
        if trainer.world_size > 1 and data is not None:
            seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
            rank, world_size = trainer.global_rank, trainer.world_size
            # attributes of this instance shadow the methods; teardown takes them away
            vars(data).update(shared_loaders(data, seed=seed, rank=rank, world_size=world_size))

    def on_validation_epoch_start(self, *args: Any) -> None:
        self.seen = 0

    def on_test_epoch_start(self, *args: Any) -> None:
        self.seen = 0

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, *args: Any
    ) -> None:
        self.seen += pl_module.batch_size(batch) if isinstance(pl_module, Task) else 0

    def on_test_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, *args: Any
    ) -> None:
        self.seen += pl_module.batch_size(batch) if isinstance(pl_module, Task) else 0

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._count(trainer, pl_module, "val", trainer.val_dataloaders)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._count(trainer, pl_module, "test", trainer.test_dataloaders)

    def _count(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str, loaders: Any) -> None:
        """Make sure that the processes together have seen every example once."""
        if trainer.world_size == 1 or getattr(trainer, f"limit_{stage}_batches") != 1.0:
            return
        count = torch.tensor(float(self.seen), device=pl_module.device)
        total = trainer.strategy.reduce(count, reduce_op="sum")
        data = getattr(loaders, "dataset", None)
        if isinstance(pl_module, Task) and isinstance(loaders, DataLoader) and hasattr(data, "__len__"):
            expected = len(loaders.dataset)  # type: ignore[arg-type]
            if int(total) != expected:
                raise UsageError(
                    f"{trainer.world_size} processes have evaluated {int(total)} {stage} examples of {expected}, so "
                    "the metrics would be wrong; use one process, or share the data as LengthGroupedBatchSampler does"
                )

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        data: Any = getattr(trainer, "datamodule", None)
        for name in ("train", "val", "test", "predict"):
            getattr(data, "__dict__", {}).pop(f"{name}_dataloader", None)
