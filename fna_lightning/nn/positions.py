"""Where a token stands: tables added to its embedding."""

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the (length, dim) table of sines and cosines of Vaswani et al., 2017."""
    place = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * (-math.log(10_000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(place * rate)
    table[:, 1::2] = torch.cos(place * rate[: dim // 2])
    return table


class Positions(nn.Module):
    """Adds a table of positions to (B, N, D) tokens.

    Args:
        kind: "learned", "sinusoidal", "random" (a frozen random table, as in the authors' code) or "none".
        max_length: number of places in the table.
        dim: width of a token.
    """

    KINDS = ("learned", "sinusoidal", "random", "none")

    def __init__(self, kind: str, max_length: int, dim: int) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"unknown positions {kind!r}; choose one of {', '.join(self.KINDS)}")
        self.kind = kind
        self.max_length = max_length
        if kind == "learned":
            self.table: Tensor = nn.Parameter(torch.randn(max_length, dim) * 0.02)
        elif kind == "sinusoidal":
            self.register_buffer("table", sinusoids(max_length, dim), persistent=False)
        elif kind == "random":
            self.register_buffer("table", torch.randn(max_length, dim))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Return ``x`` with its places, the first of which is ``start``."""
        if self.kind == "none":
            return x
        stop = start + x.size(1)
        if stop > self.max_length:
            raise ValueError(
                f"a sequence of {stop} tokens is longer than the {self.max_length} positions of this model; "
                "cut it, or train with a larger max_length"
            )
        return x + self.table[start:stop]

    def extra_repr(self) -> str:
        return f"{self.kind}, max_length={self.max_length}"
