"""Check that several processes together evaluate every example once."""

from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from fna_lightning.errors import UsageError
from fna_lightning.task import Task


class CheckSharding(L.Callback):
    """Raises an error after a validation or test in which the processes skipped or repeated examples.

    The metrics of such an evaluation would be wrong. ``RunData`` shards plain loaders correctly; this callback catches
    samplers of plug-ins that shard themselves incorrectly.
    """

    def __init__(self) -> None:
        self.examples = 0

    def on_validation_epoch_start(self, *args: Any) -> None:
        self.examples = 0

    def on_test_epoch_start(self, *args: Any) -> None:
        self.examples = 0

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, *args: Any
    ) -> None:
        self.examples += pl_module.batch_size(batch) if isinstance(pl_module, Task) else 0

    def on_test_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, *args: Any
    ) -> None:
        self.examples += pl_module.batch_size(batch) if isinstance(pl_module, Task) else 0

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.sanity_checking:
            self._check(trainer, pl_module, "val", trainer.val_dataloaders)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._check(trainer, pl_module, "test", trainer.test_dataloaders)

    def _check(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str, loader: Any) -> None:
        """Compare the number of evaluated examples of all processes with the size of the data set."""
        limit = getattr(trainer, f"limit_{stage}_batches")
        # The integer 1 means one batch, the float 1.0 all batches.
        if trainer.world_size == 1 or isinstance(limit, int) or limit != 1.0:
            return
        count = torch.tensor(float(self.examples), device=pl_module.device)
        total = trainer.strategy.reduce(count, reduce_op="sum")
        dataset: Any = getattr(loader, "dataset", None)
        if isinstance(pl_module, Task) and isinstance(loader, DataLoader) and hasattr(dataset, "__len__"):
            expected = len(dataset)
            if int(total) != expected:
                raise UsageError(
                    f"{trainer.world_size} processes have evaluated {int(total)} {stage} examples of {expected}, so "
                    "the metrics would be wrong; use one process, or share the data as LengthGroupedBatchSampler does"
                )
