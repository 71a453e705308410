"""A Gaussian kernel as wide as a power law: a control that keeps the width of attention without its heavy tail.

Widths are compared on 512 standard normal tokens, the distribution of embeddings before training, by the median weight
between two tokens or by the entropy of a row. The median weight compares a typical pair with the diagonal; the entropy
measures how close a row is to uniform.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from fna_lightning.attention import attention_weights
from fna_lightning.graph import row_entropy

TOKENS = 512


def _median_weight(weights: Tensor) -> float:
    return weights[~torch.eye(TOKENS, dtype=torch.bool)].median().item()


WIDTHS: dict[str, Callable[[Tensor], float]] = {
    "median weight": _median_weight,
    "entropy": lambda weights: row_entropy(weights).item(),
}


def kernel_width(measure: str, alpha: float, kappa: float | str, dim: int) -> float:
    """Return the width of FNA between standard normal tokens, by one of ``WIDTHS``."""
    x = torch.randn(TOKENS, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return WIDTHS[measure](attention_weights(x, x, alpha=alpha, kappa=kappa))


@cache
def matched_kappa(dim: int, measure: str, alpha: float = 1.2, kappa: float | str = "auto") -> float:
    """Return, by bisection, the kappa at which alpha = 2 is as wide as ``alpha`` with ``kappa``."""
    target = kernel_width(measure, alpha, kappa, dim)
    low, high = 0.1 * math.sqrt(dim), 100.0 * math.sqrt(dim)
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if kernel_width(measure, 2.0, middle, dim) < target else (low, middle)
    return math.sqrt(low * high)
