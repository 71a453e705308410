"""How fast information mixes while a model trains: the graph of its attention, watched on a few fixed sequences."""

import logging
import time
from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor

from fna_lightning.callbacks.attention_figures import AttentionFigures
from fna_lightning.graph import MEASURES, measure
from fna_lightning.introspection.maps import AttentionMap, attention_layers, attention_maps
from fna_lightning.introspection.probe import probe_batch
from fna_lightning.task import Task

log = logging.getLogger(__name__)


class AttentionGraph(L.Callback):
    """Logs gap, entropy, distance to uniform, effective rank and path lengths of every layer and head.

    ``attention/<layer>/<head>/<measure>`` goes to the loggers, the means ``attention/<measure>`` are metrics like
    ``val/loss``: a checkpoint or a stop may be chosen by them. Each is a mean over the probe sequences; cross-attention
    is no walk and is left out. Where alpha or kappa is learned, its value goes beside the measures. TensorBoard also
    gets figures, drawn at the end and before as often as they take no more than 0.5 % of the time. A failure is
    reported once and turns the callback off; training goes on.

    Args:
        sequences: sequences of the probe set, taken from the validation data and the same all through training.
        max_length: most tokens of a sequence that are looked at; the cost of paths grows with its cube.
        every_n_steps: look after every so many training steps; None looks at each validation.
        layers: numbers of the attention layers to look at, in the order they were made; None for all.
        heads: numbers of the heads to look at; None for all.
        figures: whether TensorBoard gets figures.
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
    ) -> None:
        for name, value, least in (
            ("sequences", sequences, 1),
            ("max_length", max_length, 2),
            ("every_n_steps", every_n_steps, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        for name, numbers in (("layers", layers), ("heads", heads)):
            if numbers is not None and (not numbers or min(numbers) < 0 or len(set(numbers)) < len(numbers)):
                raise ValueError(f"{name} must be different numbers from 0, got {numbers}; leave it out for all")
        self.sequences = sequences
        self.max_length = max_length
        self.every_n_steps = every_n_steps
        self.layers = layers
        self.heads = heads
        self.figures = AttentionFigures(self.measures) if figures else None
        self.seconds = 0.0
        self.off = False
        self._slots: dict[str, list[int]] = {}
        self._batch: Any = None
        self._has_batch = False

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
        if not isinstance(pl_module, Task):
            raise TypeError(
                f"{type(self).__name__} watches a Task, which knows how to probe its attention; "
                f"got {type(pl_module).__name__}"
            )
        self._slots = self._chosen(attention_layers(pl_module))
        self._has_batch, self._batch = False, None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.figures:
            self.figures.start()

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.every_n_steps is None and not trainer.sanity_checking:
            means = self._look(trainer, pl_module)
            # the same everywhere already; syncing again keeps Lightning from warning that it was forgotten
            pl_module.log_dict(means, on_step=False, on_epoch=True, sync_dist=True, batch_size=1)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if self.every_n_steps is None or trainer.global_step % self.every_n_steps or not trainer.global_step:
            return
        # with accumulated gradients several batches end at one step
        if (batch_idx + 1) % trainer.accumulate_grad_batches and not trainer.is_last_batch:
            return
        means = self._look(trainer, pl_module)
        for logger in trainer.loggers:
            logger.log_metrics(means, step=_last_step(trainer))
        self._draw(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # only here are the metrics of the validation complete
        if self.every_n_steps is None and not trainer.sanity_checking:
            self._draw(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.figures and trainer.is_global_zero and not self.off:
            self._guarded_draw(trainer, last=True)

    def _chosen(self, layers: dict[str, Any]) -> dict[str, list[int]]:
        """Return the heads to look at of each layer; the same on every process, so that sums have one size."""
        if not layers:
            raise ValueError(f"{type(self).__name__} finds no attention layer in this model; remove the callback")
        names = list(layers)
        if self.layers and max(self.layers) >= len(names):
            raise ValueError(
                f"layers must lie in [0, {len(names) - 1}], got {max(self.layers)}; the attention layers are "
                f"{', '.join(names)}"
            )
        chosen = {}
        for name in names if self.layers is None else [names[number] for number in self.layers]:
            count = layers[name].num_heads
            if self.heads and max(self.heads) >= count:
                raise ValueError(f"heads must lie in [0, {count - 1}], got {max(self.heads)}; {name} has {count} heads")
            chosen[name] = list(range(count)) if self.heads is None else self.heads
        return chosen

    def _look(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, float]:
        """Log the measures of each head and return their means; empty when turned off."""
        if self.off:
            return {}
        started = time.perf_counter()
        sums, problem = self._sums(trainer, pl_module)
        # one number more than the sums: whether a process failed. All must know, or the others would wait for it
        flat = torch.cat([sums.flatten(), torch.tensor([float(problem is not None)], dtype=torch.float64)])
        reduced = trainer.strategy.reduce(flat.to(**_reducible(pl_module.device)), reduce_op="sum")
        assert isinstance(reduced, Tensor)
        reduced = reduced.double().cpu()
        total, failed = reduced[:-1].reshape(sums.shape), reduced[-1] > 0
        if problem is None and not failed and not total[..., 1].any():
            problem = "the probe holds no token to look at: its sequences are empty, or no layer is self-attention"
        if problem is not None or failed:
            self._turn_off(problem)
            return {}
        means = self._log(trainer, total, self._learned(pl_module))
        self.seconds += time.perf_counter() - started
        return means

    def _sums(self, trainer: L.Trainer, pl_module: L.LightningModule) -> tuple[Tensor, str | None]:
        """Return (heads of all layers, measures, 2) sums and counts over this process's sequences, and what failed."""
        sums = torch.zeros(sum(map(len, self._slots.values())), len(self.measures), 2, dtype=torch.float64)
        try:
            maps = self._maps(trainer, pl_module)
            start = 0
            for name, heads in self._slots.items():
                if name in maps:
                    sums[start : start + len(heads)] = self._layer_sums(maps[name], heads)
                start += len(heads)
            if self.figures and trainer.is_global_zero:
                self.figures.remember(maps, self._slots)
                images = getattr(self._batch, "images", None)
                if images is not None and maps:
                    self.figures.remember_picture(images, maps)
        except Exception as error:
            log.debug("analysis failed", exc_info=True)
            return torch.zeros_like(sums), " ".join(str(error).split()) or type(error).__name__
        return sums, None

    def _maps(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, AttentionMap]:
        assert isinstance(pl_module, Task)
        if not self._has_batch:
            self._batch = probe_batch(
                trainer.val_dataloaders, self.sequences, rank=trainer.global_rank, world_size=trainer.world_size
            )
            self._has_batch = True
        if self._batch is None:
            return {}
        batch = move_data_to_device(self._batch, pl_module.device)
        maps = attention_maps(pl_module, lambda: pl_module.probe(batch, self.max_length), list(self._slots))
        return {name: kept for name, found in maps.items() if found.is_self and (kept := _not_empty(found))}

    def _layer_sums(self, found: AttentionMap, heads: Sequence[int]) -> Tensor:
        values = measure(found.weights[:, list(heads)], found.lengths, self.measures)
        stacked = torch.stack([value.cpu() for value in values.values()], dim=-1)  # (B, H, measures)
        # hops have no mean where no token reaches another
        finite = stacked.isfinite()
        return torch.stack([stacked.where(finite, 0.0).sum(0), finite.double().sum(0)], dim=-1)

    def _learned(self, pl_module: L.LightningModule) -> dict[str, float]:
        """Return alpha and kappa of each head that learns them."""
        found: dict[str, float] = {}
        layers = attention_layers(pl_module)
        for layer, heads in self._slots.items():
            for name, values in layers[layer].learned_values().items():
                found |= {f"attention/{layer}/{head}/{name}": values[head].item() for head in heads}
        return found

    def _log(self, trainer: L.Trainer, total: Tensor, learned: dict[str, float]) -> dict[str, float]:
        names = [f"{layer}/{head}" for layer, heads in self._slots.items() for head in heads]
        heads = dict(learned)
        means: dict[str, float] = {}
        for number, name in enumerate(self.measures):
            added, count = total[:, number].unbind(-1)
            for place in count.nonzero()[:, 0].tolist():
                heads[f"attention/{names[place]}/{name}"] = (added[place] / count[place]).item()
            if count.any():
                means[f"attention/{name}"] = (added.sum() / count.sum()).item()
        for logger in trainer.loggers:
            logger.log_metrics(heads, step=_last_step(trainer))
        if self.figures:
            self.figures.means = means
        return means

    def _draw(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not self.figures or self.off:
            return
        assert isinstance(pl_module, Task)
        metric = pl_module.monitor[0]
        # on every process: to know a metric they may have to add up
        value = trainer.callback_metrics.get(metric)
        if trainer.is_global_zero:
            self.figures.note(_last_step(trainer), metric, value)
            self._guarded_draw(trainer)

    def _guarded_draw(self, trainer: L.Trainer, *, last: bool = False) -> None:
        assert self.figures is not None
        started = time.perf_counter()
        try:
            self.figures.draw(trainer.loggers, _last_step(trainer), last=last)
        except Exception as error:
            self.figures.broken = True
            log.debug("drawing failed", exc_info=True)
            log.warning("%s draws no more figures in this run: %s", type(self).__name__, error)
        self.seconds += time.perf_counter() - started

    def _turn_off(self, problem: str | None) -> None:
        self.off = True
        reason = problem or "another process failed and says why"
        log.warning("%s is off for the rest of this run, training goes on: %s", type(self).__name__, reason)


class SpectralGap(AttentionGraph):
    """Logs the spectral gap 1 - |lambda_2| of every layer and head; options as for ``AttentionGraph``."""

    measures = ("spectral_gap",)


class PathLength(AttentionGraph):
    """Logs mean and most hops, and the pairs without a path, of every layer and head; options as ``AttentionGraph``."""

    measures = ("mean_hops", "max_hops", "unreachable")


class AttentionEntropy(AttentionGraph):
    """Logs how close to uniform every layer and head is; options as for ``AttentionGraph``."""

    measures = ("entropy", "tv_to_uniform", "effective_rank")


def _last_step(trainer: L.Trainer) -> int:
    """Return the step Lightning writes beside the metrics of this moment: it counts from 0."""
    return max(0, trainer.global_step - 1)


def _not_empty(found: AttentionMap) -> AttentionMap | None:
    """Return the map without its sequences that have no token; None if none is left."""
    if found.lengths is None or bool((found.lengths > 0).all()):
        return found if len(found.weights) else None
    keep = found.lengths > 0
    return AttentionMap(found.weights[keep], found.lengths[keep], found.is_self) if keep.any() else None


def _reducible(device: torch.device) -> Any:
    """Return where, and in which type, sums can be added over processes: Apple's GPUs know no float64."""
    return {"device": device, "dtype": torch.float32} if device.type == "mps" else {"device": device}
