"""Base class of all tasks: a LightningModule with a model, its loss and its metrics."""

from abc import ABC, abstractmethod
from typing import Any, Protocol, runtime_checkable

import lightning as L
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.plugins.precision import MixedPrecision, Precision
from lightning.pytorch.utilities import GradClipAlgorithmType
from torch import Tensor, nn
from torch.optim import Adam, Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torchmetrics import Metric, MetricCollection

from fna_lightning.errors import UsageError, first_line
from fna_lightning.nn.fsdp import shard
from fna_lightning.utils.ranks import mean_over_ranks

STAGES = ("train", "val", "test")


@runtime_checkable
class StepSchedule(Protocol):
    """A learning-rate schedule that moves every step and depends on the length of the training."""

    def set_total_steps(self, total_steps: float) -> None:
        """Set the number of optimizer steps of the whole training; infinity if the trainer has no limit."""


class Task(L.LightningModule, ABC):
    """A model, its loss and its metrics. A subclass defines the model and the loss of a batch.

    A task built from a configuration keeps it as ``model_config``, which consists of plain values, and saves it in its
    checkpoints. A checkpoint can then be loaded without naming the class and without executing code from the file.

    Args:
        metrics: metrics besides the loss; cloned for each stage.
        optimizer: builds the optimizer from the parameters.
        lr_scheduler: builds the learning-rate schedule from the optimizer; None for a constant rate.
        schedule_every: "epoch" or "step": how often the schedule moves. A ``StepSchedule`` moves every step.
    """

    # Metric that selects the best checkpoint, and whether "max" or "min" is better.
    monitor: tuple[str, str] = ("val/loss", "min")

    def __init__(
        self,
        metrics: MetricCollection,
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
        schedule_every: str = "epoch",
    ) -> None:
        super().__init__()
        if schedule_every not in ("epoch", "step"):
            raise ValueError(f"schedule_every must be 'epoch' or 'step', got {schedule_every!r}")
        self.metrics = nn.ModuleDict({f"{stage}_metrics": metrics.clone(prefix=f"{stage}/") for stage in STAGES})
        self.optimizer = optimizer
        self.lr_scheduler = lr_scheduler
        self.schedule_every = schedule_every
        self.model_config: dict[str, Any] | None = None

    @abstractmethod
    def loss(self, batch: Any, stage: str) -> Tensor:
        """Return the loss of a batch and update the metrics of ``stage`` ("train", "val" or "test")."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self._step(batch, "train")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self._step(batch, "val")

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self._step(batch, "test")

    def stage_metrics(self, stage: str) -> MetricCollection:
        """Return the metrics of one stage."""
        metrics = self.metrics[f"{stage}_metrics"]
        assert isinstance(metrics, MetricCollection)
        return metrics

    def batch_size(self, batch: Any) -> int:
        """Number of examples in the batch."""
        return len(batch[0])

    def loss_weight(self, batch: Any) -> int:
        """Number of elements the batch loss averages over; weights the loss across batches and processes."""
        return self.batch_size(batch)

    def probe(self, batch: Any, max_length: int | None = None) -> dict[str, Tensor]:
        """Run the forward pass of a batch so that the weights of the attention layers can be recorded.

        Args:
            batch: a batch as in ``loss``.
            max_length: maximum number of tokens per sequence; longer sequences are truncated.

        Returns:
            The number of real tokens of each sequence, keyed by the prefix of the names of the layers that process
            them; see ``attention_maps``.
        """
        raise NotImplementedError(
            f"{type(self).__name__} does not support recording its attention; implement probe(batch, max_length)"
        )

    def _step(self, batch: Any, stage: str) -> Tensor:
        # A profiler of the trainer, such as SimpleProfiler, reports this time as "loss".
        with self.trainer.profiler.profile("loss"):  # type: ignore[attr-defined]
            loss = self.loss(batch, stage)
        # A float, because Lightning's mean over processes would truncate an integer.
        size: Any = float(self.loss_weight(batch))
        evaluated = stage != "train"
        if not evaluated and self.trainer.world_size > 1:
            loss, size = self._process_loss(loss, batch)
        self.log(f"{stage}/loss", loss, on_step=not evaluated, on_epoch=True, sync_dist=True, batch_size=size)
        self.log_dict(self.stage_metrics(stage), on_step=False, on_epoch=True, prog_bar=evaluated, batch_size=size)
        return loss

    def _process_loss(self, loss: Tensor, batch: Any) -> tuple[Tensor, float]:
        """Return the loss, scaled so that its mean over processes is the loss of the whole batch, and its mean weight.

        DDP averages gradients as if all processes had batches of the same size, which the last batch does not satisfy.
        """
        weight = float(self.loss_weight(batch))
        mean = mean_over_ranks(weight)
        return loss * (weight / mean), mean

    def networks(self) -> list[nn.Module]:
        """Return the modules that ``compile_networks`` compiles: by default all parts of the task except metrics."""
        return [
            part
            for part in self.children()
            if not any(isinstance(inner, Metric | MetricCollection) for inner in part.modules())
        ]

    def compile_networks(self, **options: Any) -> None:
        """Compile the networks of the task in place with ``torch.compile``; ``state_dict`` keeps its keys.

        The task itself stays uncompiled, because ``torch.compile`` cannot trace ``LightningModule.log``.

        Args:
            options: arguments of ``torch.compile``.
        """
        for network in self.networks():
            network.compile(**options)

    @classmethod
    def load_from_checkpoint(cls, checkpoint_path: Any, *args: Any, **kwargs: Any) -> Any:
        """Load a checkpoint by Lightning's rules, which need all arguments of the class; ``analysis.load`` does not."""
        try:
            return super().load_from_checkpoint(checkpoint_path, *args, **kwargs)
        except Exception as error:
            raise UsageError(
                f"Lightning cannot build a {cls.__name__} from {checkpoint_path} ({first_line(error)}); use "
                "fna_lightning.analysis.load(path).task, which needs no arguments"
            ) from error

    def configure_model(self) -> None:
        mesh = self.device_mesh
        if mesh is not None:
            shard(self, mesh["data_parallel"])

    def configure_optimizers(self) -> Any:
        optimizer = self.optimizer(p for p in self.parameters() if p.requires_grad)
        if self.lr_scheduler is None:
            return optimizer
        schedule: dict[str, Any] = {"scheduler": self.lr_scheduler(optimizer), "interval": self.schedule_every}
        if isinstance(schedule["scheduler"], StepSchedule):
            schedule["scheduler"].set_total_steps(self.trainer.estimated_stepping_batches)
            schedule["interval"] = "step"
        if isinstance(schedule["scheduler"], ReduceLROnPlateau):
            schedule["monitor"] = self.monitor[0]
        return {"optimizer": optimizer, "lr_scheduler": schedule}

    def configure_gradient_clipping(
        self,
        optimizer: Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        precision = self.trainer.precision_plugin
        if isinstance(precision, MixedPrecision) and is_fused(optimizer):
            clip_fused_gradients(precision, optimizer, gradient_clip_val or 0.0, gradient_clip_algorithm)
        else:
            super().configure_gradient_clipping(optimizer, gradient_clip_val, gradient_clip_algorithm)

    @property
    def datamodule(self) -> Any:
        """The data module of the trainer; None without a trainer or without a data module."""
        try:
            return getattr(self.trainer, "datamodule", None)
        except RuntimeError:
            return None

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        if self.model_config is not None:
            checkpoint["model_config"] = self.model_config
        # Tokenizer and class names, which `classify` and `translate` need besides the weights.
        codec = getattr(self.datamodule, "codec", None)
        if codec is not None:
            checkpoint["codec"] = codec.state()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        saved = checkpoint.get("codec")
        codec = getattr(self.datamodule, "codec", None)
        if codec is None or not isinstance(saved, dict):
            return
        state = codec.state()
        if changed := [name for name in state if name != "max_length" and saved.get(name) != state[name]]:
            raise UsageError(
                f"the data does not have the {' and the '.join(changed).replace('_', ' ')} of the checkpoint, so "
                "predictions would be wrong; use the data that the model was trained on, or train it again"
            )


def is_fused(optimizer: Optimizer) -> bool:
    """Return whether the optimizer unscales gradients itself; Lightning refuses to clip for such an optimizer."""
    return getattr(optimizer, "_step_supports_amp_scaling", False)


def clip_fused_gradients(precision: MixedPrecision, optimizer: Optimizer, value: float, algorithm: str | None) -> None:
    """Clip the gradients of a fused optimizer in mixed precision, by "norm" (the default) or by "value".

    Lightning refuses this combination because a fused optimizer may unscale gradients after they are clipped. bfloat16
    does not scale the loss. For float16, the gradients are unscaled first, and ``GradScaler`` tells the optimizer so.
    """
    if value <= 0.0:
        return
    if precision.scaler is not None:
        precision.scaler.unscale_(optimizer)
    Precision.clip_gradients(precision, optimizer, value, GradClipAlgorithmType(algorithm or "norm"))
