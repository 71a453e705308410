"""Position embeddings of sequences and of image grids."""

import math

import torch
from torch import Tensor, nn


def sinusoids(length: int, dim: int) -> Tensor:
    """Return the (length, dim) table of sines and cosines of Vaswani et al., 2017."""
    position = torch.arange(length, dtype=torch.float32)[:, None]
    rate = torch.exp(torch.arange(0, dim, 2, dtype=torch.float32) * (-math.log(10_000.0) / dim))
    table = torch.zeros(length, dim)
    table[:, 0::2] = torch.sin(position * rate)
    table[:, 1::2] = torch.cos(position * rate[: dim // 2])
    return table


class Positions(nn.Module):
    """Adds a position embedding to (B, N, D) tokens.

    Args:
        kind: "learned", "sinusoidal", "random" (a frozen random table, as in the authors' code) or "none".
        max_length: number of positions in the table.
        dim: width of a token.
    """

    KINDS = ("learned", "sinusoidal", "random", "none")

    def __init__(self, kind: str, max_length: int, dim: int) -> None:
        super().__init__()
        _check_kind(kind, self.KINDS)
        self.kind = kind
        self.max_length = max_length
        if kind == "learned":
            self.table: Tensor = nn.Parameter(torch.randn(max_length, dim) * 0.02)
        elif kind == "sinusoidal":
            self.register_buffer("table", sinusoids(max_length, dim), persistent=False)
        elif kind == "random":
            self.register_buffer("table", torch.randn(max_length, dim))

    def forward(self, x: Tensor, start: int = 0) -> Tensor:
        """Return ``x`` plus the embeddings of the positions from ``start`` on."""
        if self.kind == "none":
            return x
        stop = start + x.size(1)
        if stop > self.max_length:
            raise ValueError(
                f"a sequence of {stop} tokens is longer than the {self.max_length} positions of this model; "
                "truncate it, or train with a larger max_length"
            )
        return x + self.table[start:stop]

    def extra_repr(self) -> str:
        return f"{self.kind}, max_length={self.max_length}"


class GridPositions(nn.Module):
    """Adds a position embedding to (B, first + rows * columns, D) tokens of an image.

    Args:
        kind: "learned", "sinusoidal" (half of the width encodes the row, half the column) or "none".
        rows: rows of the grid.
        columns: columns of the grid.
        dim: width of a token.
        first: number of tokens before those of the grid, such as CLS; sinusoidal embeddings are 0 there.
    """

    KINDS = ("learned", "sinusoidal", "none")

    def __init__(self, kind: str, rows: int, columns: int, dim: int, *, first: int = 0) -> None:
        super().__init__()
        _check_kind(kind, self.KINDS)
        self.kind = kind
        if kind == "learned":
            self.table: Tensor = nn.Parameter(torch.randn(first + rows * columns, dim) * 0.02)
        elif kind == "sinusoidal":
            half = dim // 2
            row_part = sinusoids(rows, half)[:, None].expand(rows, columns, half)
            column_part = sinusoids(columns, dim - half)[None].expand(rows, columns, dim - half)
            grid = torch.cat([row_part, column_part], dim=-1).reshape(rows * columns, dim)
            self.register_buffer("table", torch.cat([torch.zeros(first, dim), grid]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` plus the position embeddings."""
        return x if self.kind == "none" else x + self.table

    def extra_repr(self) -> str:
        return self.kind


def _check_kind(kind: str, kinds: tuple[str, ...]) -> None:
    if kind not in kinds:
        raise ValueError(f"unknown positions {kind!r}; choose one of {', '.join(kinds)}")
