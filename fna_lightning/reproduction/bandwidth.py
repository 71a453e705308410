"""A Gaussian as wide as a power law: the control that keeps the width of attention and takes away its heavy tail.

Widths are compared on 512 standard normal tokens, as embeddings are before training, by the median weight between two
tokens or by the entropy of a row. The median weight says how far a typical pair lies below a token and itself; the
entropy, how near to uniform the whole row is.
"""

import math
from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from fna_lightning.attention import attention_weights
from fna_lightning.graph import row_entropy

TOKENS = 512


def _median(weights: Tensor) -> float:
    return weights[~torch.eye(TOKENS, dtype=torch.bool)].median().item()


WIDTHS: dict[str, Callable[[Tensor], float]] = {
    "median weight": _median,
    "entropy": lambda weights: row_entropy(weights).item(),
}


def width(by: str, alpha: float, kappa: float | str, dim: int) -> float:
    """Return the width of an attention between standard normal tokens."""
    x = torch.randn(TOKENS, dim, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return WIDTHS[by](attention_weights(x, x, alpha=alpha, kappa=kappa))


@cache
def matched_kappa(dim: int, by: str, alpha: float = 1.2, kappa: float | str = "auto") -> float:
    """Return the kappa of alpha = 2 that is as wide as ``alpha`` with ``kappa``, by bisection; width grows with it."""
    wanted = width(by, alpha, kappa, dim)
    low, high = 0.1 * math.sqrt(dim), 100.0 * math.sqrt(dim)
    for _ in range(30):
        middle = math.sqrt(low * high)
        low, high = (middle, high) if width(by, 2.0, middle, dim) < wanted else (low, middle)
    return math.sqrt(low * high)
