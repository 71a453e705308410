"""Regression of a field from scattered points."""

from collections.abc import Callable, Mapping

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.optim import Adam
from torchmetrics import MetricCollection

from fna_lightning.attention import Attention
from fna_lightning.nn import AttentiveProcess, NeuralProcess
from fna_lightning.task import Task
from fna_lightning.tasks.fields.episodes import FieldBatch
from fna_lightning.tasks.fields.likelihood import Likelihood, SquaredError


class FieldRegression(Task):
    """Predicts a field at query points from its values at context points.

    Metrics of the evaluation sets are logged separately, such as ``test/mse_n64`` for 64 context points.

    Args:
        coordinate_dim: number of coordinates of a point; taken from the data.
        value_dim: number of values of a point; taken from the data.
        eval_sets: names of the evaluation sets; taken from the data.
        attention: the attention of the queries to the context.
        likelihood: meaning of the output, with its loss and metrics; None is ``SquaredError``.
        network: builds the network from ``(attention, coordinate_dim, value_dim, out_dim)``.
        optimizer: builds the optimizer from the parameters.
        lr_scheduler: builds the learning-rate schedule from the optimizer; None for a constant rate.
    """

    monitor = ("val/loss", "min")

    def __init__(
        self,
        coordinate_dim: int,
        value_dim: int,
        eval_sets: list[str],
        attention: Attention,
        likelihood: Likelihood | None = None,
        network: Callable[[Attention, int, int, int], NeuralProcess] = AttentiveProcess,
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        likelihood = SquaredError() if likelihood is None else likelihood
        by_name = likelihood.metrics()
        # Two metrics may have equal values on the first batch, so they must not share their state.
        metrics = MetricCollection(dict(by_name), compute_groups=False)
        set_metrics = MetricCollection(
            {name: metric for name, metric in by_name.items() if name in likelihood.set_metrics}, compute_groups=False
        )
        super().__init__(metrics, optimizer, lr_scheduler)
        self.likelihood = likelihood
        self.eval_sets = list(eval_sets)
        # The loss is enough in training, and metrics of every batch would take a tenth of the time.
        self.metrics["train_metrics"] = MetricCollection({}, prefix="train/")
        self.set_metrics = nn.ModuleDict(
            {
                f"{stage}_{name}": set_metrics.clone(prefix=f"{stage}/", postfix=f"_{name}")
                for stage in ("val", "test")
                for name in self.eval_sets
            }
        )
        self.network = network(attention, coordinate_dim, value_dim, self.likelihood.output_dim(value_dim))

    def forward(self, context_x: Tensor, context_y: Tensor, query_x: Tensor, mask: Tensor | None = None) -> Tensor:
        """Return the (B, N, output_dim) outputs of the network; see ``NeuralProcess.forward``."""
        return self.network(context_x, context_y, query_x, mask)

    def predict_field(self, context_x: Tensor, context_y: Tensor, query_x: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return the predicted values of the queries and their standard deviations, which may be None."""
        output = self(context_x, context_y, query_x)
        return self.likelihood.mean(output), self.likelihood.deviation(output)

    def loss(self, batch: FieldBatch, stage: str) -> Tensor:
        output = self(batch.context_x, batch.context_y, batch.query_x, batch.context_mask())
        if stage != "train":
            self.stage_metrics(stage).update(output, batch.query_y)
            self._update_sets(batch, output, stage)
        return self.likelihood.loss(output, batch.query_y)

    def probe(self, batch: FieldBatch, max_length: int | None = None) -> dict[str, Tensor]:
        mask = batch.context_mask()
        context = (batch.context_x[:, :max_length], batch.context_y[:, :max_length])
        self(*context, batch.query_x[:, :max_length], None if mask is None else mask[..., :max_length])
        return {"": batch.lengths if max_length is None else batch.lengths.clamp(max=max_length)}

    def error_curves(self, metrics: Mapping[str, float], stage: str) -> dict[str, dict[int, float]]:
        """Return the error by number of context points, for each survey; the survey of training has the name "".

        Args:
            metrics: values of the metrics, as logged.
            stage: "val" or "test".
        """
        curves: dict[str, dict[int, float]] = {}
        for name in self.eval_sets:
            size, _, survey = name.removeprefix("n").partition("_")
            value = metrics.get(f"{stage}/{self.likelihood.error}_{name}")
            if value is not None and size.isdigit():
                curves.setdefault(survey, {})[int(size)] = value
        return curves

    def _update_sets(self, batch: FieldBatch, output: Tensor, stage: str) -> None:
        """Update and log the metrics of each evaluation set."""
        for number, name in enumerate(self.eval_sets):
            metrics = self.set_metrics[f"{stage}_{name}"]
            assert isinstance(metrics, MetricCollection)
            rows = torch.nonzero(batch.eval_set == number).flatten()
            if len(rows):
                metrics.update(output[rows], batch.query_y[rows])
            # Metrics are synchronized at the end of the epoch, so several processes must all log the same ones.
            if len(rows) or self.trainer.world_size > 1:
                self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=self.batch_size(batch))
