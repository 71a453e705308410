"""EffectiveNeighbors: how many context points share the weight of a query, for each head of a field model."""

from pathlib import Path
from typing import Any

import lightning as L
import torch

from fna_lightning.graph import effective_neighbors
from fna_lightning.plotting.fields import curve_figure
from fna_lightning.tasks.fields.episodes import FieldBatch
from fna_lightning.tasks.fields.task import FieldRegression
from fna_lightning.tasks.fields.weights import query_weights
from fna_lightning.training.figure_writers import figure_writers
from fna_lightning.utils.files import atomic_write

FILE_NAME = "neighbors.png"

# (layer, head) -> number of context points -> effective number of neighbors
Neighbors = dict[tuple[str, int], dict[int, float]]


class EffectiveNeighbors(L.Callback):
    """Logs the effective number of neighbors of each head of a ``FieldRegression`` against the number of points n.

    It is the exponential of the entropy of the weights of a query, averaged over queries: 1 if a query attends to one
    context point and n if it attends to all of them equally. A head that follows the density of the points keeps it
    constant as n grows; for a head with one width it is proportional to n.

    At each validation it logs ``neighbors/<evaluation set>/<layer>/<head>``; at the end of training it writes
    neighbors.png to the run folder and adds the figure ``neighbors`` to TensorBoard.

    Args:
        episodes: number of validation episodes to measure for each evaluation set.
    """

    def __init__(self, episodes: int = 4) -> None:
        if episodes < 1:
            raise ValueError(f"episodes must be at least 1, got {episodes}")
        self.episodes = episodes
        # evaluation set -> (layer, head) -> effective number of neighbors
        self._values: dict[str, dict[tuple[str, int], float]] = {}

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if not isinstance(pl_module, FieldRegression):
            raise TypeError(
                f"EffectiveNeighbors needs a FieldRegression, got {type(pl_module).__name__}; remove the callback"
            )

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._values = {}

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: FieldBatch,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        assert isinstance(pl_module, FieldRegression)
        if trainer.sanity_checking or not trainer.is_global_zero:
            return
        for number in batch.eval_set.unique().tolist():
            name = pl_module.eval_sets[number]
            if name not in self._values:
                rows = torch.nonzero(batch.eval_set == number).flatten()[: self.episodes]
                self._values[name] = head_neighbors(pl_module, batch.rows(rows))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        tags = {
            f"neighbors/{name}/{layer}/{head}": value
            for name, values in self._values.items()
            for (layer, head), value in values.items()
        }
        for logger in trainer.loggers if tags else []:
            logger.log_metrics(tags, step=max(0, trainer.global_step - 1))

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        curves = self.curves()
        if not curves or not trainer.is_global_zero or getattr(trainer, "fast_dev_run", False):
            return
        single = len({layer for layer, _ in curves}) == 1
        labels = {key: f"head {key[1]}" if single else f"{key[0]} head {key[1]}" for key in curves}
        figure = curve_figure({labels[key]: curve for key, curve in curves.items()}, "effective number of neighbors")
        atomic_write(Path(trainer.default_root_dir) / FILE_NAME, lambda file: figure.savefig(file, format="png"))
        for board in figure_writers(trainer.loggers):
            board.add_figure("neighbors", figure, max(0, trainer.global_step - 1))

    def curves(self) -> Neighbors:
        """Return the values of the last validation by number of points, for each head; of the training survey only."""
        curves: Neighbors = {}
        for name, values in self._values.items():
            size = name.removeprefix("n")
            if size.isdigit():
                for key, value in values.items():
                    curves.setdefault(key, {})[int(size)] = value
        return curves


def head_neighbors(task: FieldRegression, batch: FieldBatch) -> dict[tuple[str, int], float]:
    """Return the effective number of neighbors of the queries by layer and head, a mean over the batch."""
    return {key: effective_neighbors(weights).mean().item() for key, weights in query_weights(task, batch).items()}
