"""Metrics that several tasks use."""

import torch
from torch import Tensor
from torchmetrics import Metric


class WeightedMean(Metric):
    """Weighted mean of one value per batch.

    ``torchmetrics.MeanMetric`` looks for NaN in every update, which waits for a GPU, and ignores the weights if that is
    turned off. Here a NaN makes the mean NaN.
    """

    full_state_update = False
    total: Tensor
    weight: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_state("total", torch.zeros(()), dist_reduce_fx="sum")
        self.add_state("weight", torch.zeros(()), dist_reduce_fx="sum")

    def update(self, value: Tensor, weight: float) -> None:
        """Add the value of a batch, such as a mean over ``weight`` tokens."""
        self.total += value.detach() * weight
        self.weight += weight

    def compute(self) -> Tensor:
        """Return the mean."""
        return self.total / self.weight
