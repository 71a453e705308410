"""The mean of the weights after each of the last epochs: what many a translation result rests on."""

from typing import Any

import lightning as L
from lightning.pytorch.callbacks import WeightAveraging
from torch import Tensor


class AverageEpochs(WeightAveraging):
    """Validates and saves the mean of the weights at the ends of the last epochs; before them, the weights as they are.

    For an exponential average name Lightning's own ``EMAWeightAveraging``.

    Args:
        last: how many epochs, the last one included, are averaged.
    """

    def __init__(self, last: int = 5) -> None:
        if last < 1:
            raise ValueError(f"last must be at least 1 epoch, got {last}")
        super().__init__(use_buffers=False, avg_fn=self._mean)
        self.last = last
        # epochs in the mean so far; below 1 the mean starts again
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
        # once an epoch, and before its validation
        if trainer.is_last_batch:
            assert trainer.max_epochs is not None
            self.counted = trainer.current_epoch - (trainer.max_epochs - self.last)
            super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
