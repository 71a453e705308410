"""What the output of a field model means: a value, a normal distribution, or the probabilities of classes."""

import math
from abc import ABC, abstractmethod
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F
from torchmetrics import Metric

from fna_lightning.tasks.fields.metrics import CalibrationError, PointMean, half_width


class Likelihood(ABC):
    """Meaning of the output of a network, with its loss and metrics."""

    # Metric drawn against the number of context points.
    error: str = "mse"
    # Metrics that are also logged for each evaluation set.
    set_metrics: tuple[str, ...] = ("mse", "nll")

    def output_dim(self, value_dim: int) -> int:
        """Return the number of outputs of the network per query."""
        return value_dim

    @abstractmethod
    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the training loss.

        Args:
            output: (B, N, output_dim) outputs of the network.
            target: (B, N, value_dim) true values.
        """

    @abstractmethod
    def metrics(self) -> dict[str, Metric]:
        """Return the metrics by name; each is updated with outputs and true values."""

    @abstractmethod
    def mean(self, output: Tensor) -> Tensor:
        """Return the (B, N, value_dim) predicted values, or the probabilities of the classes."""

    def deviation(self, output: Tensor) -> Tensor | None:
        """Return the (B, N, value_dim) predicted standard deviations; None if there are none."""
        return None


class SquaredError(Likelihood):
    """The output is the predicted value; the loss is the mean squared error."""

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return F.mse_loss(output, target)

    def metrics(self) -> dict[str, Metric]:
        return {"mse": PointMean(_squared_error)}

    def mean(self, output: Tensor) -> Tensor:
        return output


class GaussianLikelihood(Likelihood):
    """The outputs are mean and variance of a normal distribution for each value.

    Args:
        beta: exponent of the weight variance^beta of each point in the loss (Seitzer et al., arXiv 2203.09168). 0 is
            the negative log-likelihood; 1 trains the means as the squared error does, so that points with a large
            predicted variance are not neglected.
        min_deviation: smallest predicted standard deviation.
    """

    def __init__(self, beta: float = 1.0, min_deviation: float = 0.01) -> None:
        if not 0.0 <= beta <= 1.0:
            raise ValueError(f"beta must lie in [0, 1], got {beta}")
        if not min_deviation > 0.0:
            raise ValueError(f"min_deviation must be positive, got {min_deviation}")
        self.beta = beta
        self.min_deviation = min_deviation

    def output_dim(self, value_dim: int) -> int:
        return 2 * value_dim

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        weight = self.deviation(output).detach() ** (2.0 * self.beta)
        return (weight * self.nll(output, target)).mean()

    def metrics(self) -> dict[str, Metric]:
        return {
            "mse": PointMean(self.squared_error),
            "nll": PointMean(self.nll),
            "coverage50": PointMean(partial(self.inside, level=0.5)),
            "coverage90": PointMean(partial(self.inside, level=0.9)),
            "calibration_error": CalibrationError(self.standard_errors),
        }

    def mean(self, output: Tensor) -> Tensor:
        return output.chunk(2, dim=-1)[0]

    def deviation(self, output: Tensor) -> Tensor:
        return self.min_deviation + F.softplus(output.chunk(2, dim=-1)[1])

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the negative log-likelihood of each value."""
        deviation = self.deviation(output)
        error = (target - self.mean(output)) / deviation
        return 0.5 * error.square() + deviation.log() + 0.5 * math.log(2.0 * math.pi)

    def squared_error(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the squared error of each value."""
        return _squared_error(self.mean(output), target)

    def standard_errors(self, output: Tensor, target: Tensor) -> Tensor:
        """Return |error| / predicted standard deviation of each value."""
        return (target - self.mean(output)).abs() / self.deviation(output)

    def inside(self, output: Tensor, target: Tensor, level: float) -> Tensor:
        """Return for each value whether it lies in the central interval of probability ``level``."""
        return (self.standard_errors(output, target) <= half_width(torch.tensor(level)).item()).float()


class CategoricalLikelihood(Likelihood):
    """The outputs are the logits of classes, and the true values are one-hot vectors of labels."""

    error = "nll"
    set_metrics = ("nll", "accuracy")

    def loss(self, output: Tensor, target: Tensor) -> Tensor:
        return self.nll(output, target).mean()

    def metrics(self) -> dict[str, Metric]:
        return {"nll": PointMean(self.nll), "accuracy": PointMean(self.correct)}

    def mean(self, output: Tensor) -> Tensor:
        return output.softmax(dim=-1)

    def nll(self, output: Tensor, target: Tensor) -> Tensor:
        """Return the negative log-likelihood of each label."""
        return -(output.log_softmax(dim=-1) * target).sum(dim=-1)

    def correct(self, output: Tensor, target: Tensor) -> Tensor:
        """Return for each point whether the most probable class is the label."""
        return (output.argmax(dim=-1) == target.argmax(dim=-1)).float()


def _squared_error(mean: Tensor, target: Tensor) -> Tensor:
    return (mean - target).square()
