"""Where a token stands in an image: tables over the rows and columns of a grid."""

import torch
from torch import Tensor, nn

from fna_lightning.nn.positions import sinusoids


class GridPositions(nn.Module):
    """Adds a table of positions to (B, first + rows * columns, D) tokens.

    Args:
        kind: "learned", "sinusoidal" (half of the width tells the row, half the column) or "none".
        rows: of the grid.
        columns: of the grid.
        dim: width of a token.
        first: tokens before those of the grid, such as CLS; sines and cosines leave them alone.
    """

    KINDS = ("learned", "sinusoidal", "none")

    def __init__(self, kind: str, rows: int, columns: int, dim: int, *, first: int = 0) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"unknown positions {kind!r}; choose one of {', '.join(self.KINDS)}")
        self.kind = kind
        if kind == "learned":
            self.table: Tensor = nn.Parameter(torch.randn(first + rows * columns, dim) * 0.02)
        elif kind == "sinusoidal":
            half = dim // 2
            of_row = sinusoids(rows, half)[:, None].expand(rows, columns, half)
            of_column = sinusoids(columns, dim - half)[None].expand(rows, columns, dim - half)
            grid = torch.cat([of_row, of_column], dim=-1).reshape(rows * columns, dim)
            self.register_buffer("table", torch.cat([torch.zeros(first, dim), grid]), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        """Return ``x`` with its places."""
        return x if self.kind == "none" else x + self.table

    def extra_repr(self) -> str:
        return self.kind
