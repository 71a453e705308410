"""AttentionGraph: logs graph measures of every attention head on a few fixed sequences while a model trains."""

import logging
import statistics
import time
from typing import Any

import lightning as L
import torch
from torch import Tensor

from fna_lightning.callbacks.attention_figures import AttentionFigures
from fna_lightning.callbacks.head_means import (
    HeadValues,
    empty_sums,
    head_means,
    head_sums,
    head_tag,
    mean_tag,
    reduce_sums,
)
from fna_lightning.callbacks.head_selection import check_indices, select_heads
from fna_lightning.callbacks.probe_maps import ProbeMaps
from fna_lightning.callbacks.probe_words import probe_words
from fna_lightning.errors import one_line
from fna_lightning.graph import MEASURES
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.task import Task
from fna_lightning.training.figure_writers import figure_writers

log = logging.getLogger(__name__)

# number of heads, over all layers, up to which each of them gets its own curves
MANY_HEADS = 16
# steps of the first epoch after which the graph is measured besides the validations
FIRST_STEPS = (1, 10, 100, 1000)


class AttentionGraph(L.Callback):
    """Logs the measures of ``graph.MEASURES`` of every layer and head.

    They are spectral gap, entropy, distance to uniform, effective rank, effective number of neighbors, direction,
    algebraic connectivity and path lengths. Every value is a mean over the probe sequences. Cross-attention is left
    out, because its matrix is not a graph on one set of tokens. If alpha or kappa is learned, it is logged in the same
    way as the measures:

    - means over heads, ``attention/spectral_gap`` and ``attention/mean_hops``, and ``attention_detail/<measure>`` for
      the others. At a validation they go through ``LightningModule.log_dict`` like
      ``val/loss``, so that ModelCheckpoint and EarlyStopping can monitor them.
    - values of each head, ``heads/<layer>/<head>/<measure>``, if there are at most 16 heads or if ``per_head`` is True.
      They go directly to the loggers: ``LightningModule.log`` would synchronize each of them separately and add them to
      results.json. Without them, TensorBoard gets a histogram over heads of each measure, ``heads/<measure>``, and heat
      maps of layers and heads.

    TensorBoard also gets figures: at the end of training, and during training as long as drawing takes no more than
    0.5 % of the time. If measuring fails, the callback logs one warning and turns itself off; training continues.

    Args:
        sequences: number of validation sequences to measure; they stay the same during training.
        max_length: tokens after which a sequence is truncated; the cost of path lengths is cubic in it.
        every_n_steps: measure after every n training steps; None measures at each validation, and in the first epoch
            after 1, 10, 100 and 1000 steps, because a first epoch may take hours.
        layers: indices of the attention layers to measure, in the order the model defines them; None for all.
        heads: indices of the heads to measure; None for all.
        figures: whether to add figures to TensorBoard.
        per_head: whether to log a curve for each head; None does so for at most 16 heads, over all layers.
    """

    measures: tuple[str, ...] = MEASURES

    def __init__(
        self,
        sequences: int = 4,
        max_length: int = 64,
        every_n_steps: int | None = None,
        layers: list[int] | None = None,
        heads: list[int] | None = None,
        figures: bool = True,
        per_head: bool | None = None,
    ) -> None:
        for name, value, minimum in (
            ("sequences", sequences, 1),
            ("max_length", max_length, 2),
            ("every_n_steps", every_n_steps, 1),
        ):
            if value is not None and value < minimum:
                raise ValueError(f"{name} must be at least {minimum}, got {value}")
        check_indices("layers", layers)
        check_indices("heads", heads)
        self.probe = ProbeMaps(sequences, max_length)
        self.every_n_steps = every_n_steps
        self.layers = layers
        self.heads = heads
        self.per_head = per_head
        self.figures = AttentionFigures(self.measures) if figures else None
        self.off = False
        # the same on every process, so that their sums have the same shape
        self._selected: dict[str, list[int]] = {}
        self.measurements = 0
        self._measuring_seconds = 0.0

    @property
    def seconds(self) -> float:
        """Time spent on measuring and drawing."""
        return self._measuring_seconds + (self.figures.seconds if self.figures else 0.0)

    @property
    def state_key(self) -> str:
        return f"{type(self).__name__}[every_n_steps={self.every_n_steps}]"

    def state_dict(self) -> dict[str, Any]:
        return {"history": self.figures.history} if self.figures else {}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.figures:
            self.figures.history = [tuple(point) for point in state_dict.get("history", [])]

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if stage not in ("fit", "validate"):
            return
        name = type(self).__name__
        if not isinstance(pl_module, Task):
            raise TypeError(f"{name} needs a Task, whose method probe() runs its model; got {type(pl_module).__name__}")
        layers = attention_layers(pl_module)
        if not layers:
            raise ValueError(f"{name} finds no attention layer in this model; remove the callback")
        self._selected = select_heads(layers, self.layers, self.heads)
        self.probe.reset()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.figures:
            self.figures.start()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.every_n_steps is None and not trainer.sanity_checking:
            means = self._measure(trainer, pl_module)
            # the means are equal on all processes already; without sync_dist Lightning warns
            pl_module.log_dict(means, on_step=False, on_epoch=True, sync_dist=True, batch_size=1)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if not self._is_due(trainer):
            return
        # with accumulated gradients, global_step stays the same for several batches
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        if means := self._measure(trainer, pl_module):
            # the column by which the report of a sweep assigns values to epochs; Lightning adds it to its own rows
            _log_to_all(trainer, {**means, "epoch": trainer.current_epoch})
        if self.every_n_steps is not None:
            self._draw(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # the metrics of the validation are complete only here
        if self.every_n_steps is None and not trainer.sanity_checking:
            self._draw(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.figures and trainer.is_global_zero and not self.off:
            self.figures.draw(trainer.loggers, _last_step(trainer), last=True)

    def _is_due(self, trainer: L.Trainer) -> bool:
        """Return whether to measure after the training step that has just ended."""
        step = trainer.global_step
        if self.every_n_steps is None:
            return trainer.current_epoch == 0 and step in FIRST_STEPS
        return step > 0 and step % self.every_n_steps == 0

    def _measure(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, float]:
        """Log the measures of each head and return their means over heads; empty if the callback is off."""
        if self.off:
            return {}
        started = time.perf_counter()
        sums, problem = self._local_sums(trainer, pl_module)
        sums, failed = reduce_sums(sums, trainer, pl_module.device, failed=problem is not None)
        if not failed and not sums[..., 1].any():
            failed, problem = True, "the probe sequences have no tokens, or the model has no self-attention"
        if failed:
            self._turn_off(problem or "another process failed; its message has the reason")
            return {}
        per_head, means = head_means(sums, self._selected, self.measures)
        learned = self._learned_values(pl_module)
        means |= {mean_tag(name): statistics.fmean(values.values()) for name, values in learned.items()}
        per_head |= learned
        self._log_heads(trainer, per_head)
        if self.figures:
            self.figures.means = means
        self.measurements += 1
        self._measuring_seconds += time.perf_counter() - started
        return means

    def _log_heads(self, trainer: L.Trainer, per_head: HeadValues) -> None:
        """Log a curve of each head; if there are many, histograms over heads instead, and heat maps later."""
        count = max(map(len, per_head.values()))
        if count <= MANY_HEADS if self.per_head is None else self.per_head:
            tags = {
                head_tag(layer, head, name): value
                for name, values in per_head.items()
                for (layer, head), value in values.items()
            }
            _log_to_all(trainer, tags)
            return
        if self.figures:
            self.figures.per_head = per_head
        if trainer.is_global_zero:
            for board in figure_writers(trainer.loggers):
                for name, values in per_head.items():
                    board.add_histogram(f"heads/{name}", torch.tensor(list(values.values())), _last_step(trainer))

    def _local_sums(self, trainer: L.Trainer, pl_module: L.LightningModule) -> tuple[Tensor, str | None]:
        """Return the sums over this process's sequences, and the error message if measuring failed."""
        assert isinstance(pl_module, Task)
        try:
            maps = self.probe.compute(trainer, pl_module, list(self._selected))
            sums = head_sums(maps, self._selected, self.measures)
            if self.figures and trainer.is_global_zero:
                batch, codec = self.probe.batch, getattr(pl_module.datamodule, "codec", None)
                self.figures.set_example(
                    maps, self._selected, getattr(batch, "images", None), lambda layer: probe_words(batch, codec, layer)
                )
        except Exception as error:
            log.debug("measuring attention failed", exc_info=True)
            return empty_sums(self._selected, self.measures), one_line(error)
        return sums, None

    def _learned_values(self, pl_module: L.LightningModule) -> HeadValues:
        """Return learned alpha and kappa by name and (layer, head)."""
        layers = attention_layers(pl_module)
        learned: HeadValues = {}
        for layer, heads in self._selected.items():
            for name, values in layers[layer].learned_values().items():
                learned.setdefault(name, {}).update({(layer, head): values[head].item() for head in heads})
        return learned

    def _draw(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self.figures or self.off:
            return
        assert isinstance(pl_module, Task)
        metric = pl_module.monitor[0]
        # on every process: reading a metric may synchronize it
        value = trainer.callback_metrics.get(metric)
        if trainer.is_global_zero:
            step = _last_step(trainer)
            self.figures.add_point(step, metric, value)
            self.figures.draw(trainer.loggers, step)

    def _turn_off(self, reason: str) -> None:
        self.off = True
        log.warning("%s is off for the rest of this run, training continues: %s", type(self).__name__, reason)


def _log_to_all(trainer: L.Trainer, values: dict[str, float]) -> None:
    for logger in trainer.loggers if values else []:
        logger.log_metrics(values, step=_last_step(trainer))


def _last_step(trainer: L.Trainer) -> int:
    """Return the step that Lightning logs with the metrics of this moment; it counts from 0."""
    return max(0, trainer.global_step - 1)
