"""Average of the weights of the last epochs, as is common in machine translation."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor


class AverageEpochs(WeightAveraging):
    """Validates and saves the average of the weights at the ends of the last epochs.

    Before the last epochs, it validates and saves the current weights. For an exponential moving average use
    Lightning's ``EMAWeightAveraging``.

    Args:
        last: number of epochs to average, including the final one.
    """

    def __init__(self, last: int = 5) -> None:
        if last < 1:
            raise ValueError(f"last must be at least 1 epoch, got {last}")
        super().__init__(use_buffers=False, avg_fn=self._mean)
        self.last = last
        # number of epochs in the average so far; below 1 the average starts again
        self.counted = 0

    def _mean(self, average: Tensor, current: Tensor, _: Tensor | int) -> Tensor:
        return current.clone() if self.counted < 1 else average + (current - average) / (self.counted + 1)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage == "fit" and (trainer.max_epochs is None or trainer.max_epochs < 1):
            raise ValueError(
                f"AverageEpochs must know the last epoch; set trainer.max_epochs, got {trainer.max_epochs}"
            )
        super().setup(trainer, pl_module, stage)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        # Update once per epoch, before its validation.
        if trainer.is_last_batch:
            assert trainer.max_epochs is not None
            self.counted = trainer.current_epoch - (trainer.max_epochs - self.last)
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
