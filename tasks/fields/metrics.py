"""Metrics of predictions at points: means over points, and the calibration of predicted intervals."""

from collections.abc import Callable

import torch
from torch import Tensor
from torchmetrics import Metric

# Levels of the intervals whose coverage enters the calibration error.
LEVELS = tuple(level / 10 for level in range(1, 10))


class PointMean(Metric):
    """Mean over all points of a function of the output of the network and the true values.

    Args:
        function: called with outputs and true values, returns one number per point or per value.
    """

    full_state_update = False
    total: Tensor
    count: Tensor

    def __init__(self, function: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function
        self.add_state("total", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add the points of a batch."""
        values = self.function(output.detach(), target)
        self.total += values.sum(dtype=torch.float64)
        self.count += values.numel()

    def compute(self) -> Tensor:
        """Return the mean."""
        return (self.total / self.count).float()


class CalibrationError(Metric):
    """Mean over the levels 10 %, 20 %, ..., 90 % of |share of values inside the central interval - level|.

    0 is perfect calibration.

    Args:
        standard_errors: called with outputs and true values, returns |error| / predicted standard deviation.
    """

    full_state_update = False
    inside: Tensor
    count: Tensor

    def __init__(self, standard_errors: Callable[[Tensor, Tensor], Tensor]) -> None:
        super().__init__()
        self.standard_errors = standard_errors
        self.add_state("inside", torch.zeros(len(LEVELS), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("count", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, output: Tensor, target: Tensor) -> None:
        """Add the points of a batch."""
        errors = self.standard_errors(output.detach(), target).flatten()
        bounds = half_width(torch.tensor(LEVELS, device=errors.device))
        self.inside += (errors[:, None] <= bounds).sum(dim=0)
        self.count += errors.numel()

    def compute(self) -> Tensor:
        """Return the calibration error."""
        levels = torch.tensor(LEVELS, device=self.inside.device, dtype=self.inside.dtype)
        return (self.inside / self.count - levels).abs().mean().float()


def half_width(level: Tensor) -> Tensor:
    """Return half the width, in standard deviations, of the central interval of a normal distribution."""
    return torch.special.ndtri(0.5 + 0.5 * level)
