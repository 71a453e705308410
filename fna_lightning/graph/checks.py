"""What every analysis asks of its matrices, said once: finite, square, row-stochastic, with sensible lengths.

``Walks`` holds a checked batch and hands out the blocks of real tokens, padding removed. All analyses run in float64 on
the CPU: their matrices are few and small, and half or single precision would drown the small gaps they look for.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# a row of bfloat16 weights sums to 1 only within the 8 bits of each of them
ROW_SUM_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 2e-2, torch.float32: 1e-4, torch.float64: 1e-4}


@dataclass(frozen=True)
class Walks:
    """A batch of checked matrices.

    Attributes:
        matrices: (N, n, n), the leading dimensions flattened.
        lengths: (N,) tokens that are real, from the left.
        shape: the leading dimensions the caller gave.
        stochastic: whether every row of real tokens must sum to 1.
    """

    matrices: Tensor
    lengths: Tensor
    shape: torch.Size
    stochastic: bool

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (indices, blocks) for each length that occurs: which matrices have it, and their real tokens.

        Blocks are float64. Stochastic ones are normalised again, which repairs rounding only.
        """
        for length in self.lengths.unique().tolist():
            where = (self.lengths == length).nonzero()[:, 0]
            everything = len(where) == len(self.matrices)
            chosen = self.matrices if everything else self.matrices[where.to(self.matrices.device)]
            block = chosen[:, :length, :length].to("cpu", torch.float64)
            sums = block.sum(dim=-1, keepdim=True)
            self._check_values(block, sums, where)
            if self.stochastic:
                # in place where the conversion has made a copy: a pass over fresh memory costs more than the product
                scale = sums.reciprocal_()
                block = block * scale if block.data_ptr() == self.matrices.data_ptr() else block.mul_(scale)
            yield where, block

    def scalars(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``measure`` of every matrix, a function from (m, length, length) blocks to m numbers."""
        result = torch.empty(len(self.matrices), dtype=torch.float64)
        for where, block in self.blocks():
            result[where] = measure(block)
        return self.restore(result)

    def restore(self, result: Tensor) -> Tensor:
        """Return (N, ...) results in the caller's leading shape and on its device."""
        return result.reshape(self.shape + result.shape[1:]).to(self.matrices.device)

    def _check_values(self, block: Tensor, sums: Tensor, where: Tensor) -> None:
        # the sum of a row is not finite exactly when one of its weights is not, at a tenth of the cost of asking them
        # all
        if not sums.isfinite().all():
            m, i = (~sums[..., 0].isfinite()).nonzero()[0].tolist()
            bad = block[m, i][~block[m, i].isfinite()][0].item()
            raise ValueError(
                f"weights must be finite, got {bad} in row {i} of matrix {self._name(where[m])}; "
                "look for a diverged model, or a masked row that was not set to 0"
            )
        if block.amin() < 0:
            m, i, j = (block < 0).nonzero()[0].tolist()
            raise ValueError(
                f"weights must not be negative, got {block[m, i, j].item():.4g} at ({i}, {j}) of matrix "
                f"{self._name(where[m])}; pass the weights after the softmax"
            )
        tolerance = ROW_SUM_TOLERANCE[self.matrices.dtype]
        if self.stochastic and ((sums - 1).abs() > tolerance).any():
            m, i = ((sums[..., 0] - 1).abs() > tolerance).nonzero()[0].tolist()
            total = sums[m, i, 0].item()
            way_out = (
                "a query that may attend to nothing takes no step of a walk: leave it out through `lengths`"
                if total == 0
                else "pass the weights after the softmax, with the padded keys masked"
            )
            raise ValueError(
                f"rows must sum to 1 within {tolerance:g}, got {total:.6g} in row {i} of matrix "
                f"{self._name(where[m])} (length {block.size(-1)}); {way_out}"
            )

    def _name(self, flat: Tensor) -> tuple[int, ...]:
        return tuple(int(index) for index in torch.unravel_index(flat, self.shape)) if self.shape else ()


def check_walks(weights: Tensor, lengths: Tensor | None = None, *, stochastic: bool = True) -> Walks:
    """Return the checked batch of (..., n, n) ``weights``.

    Args:
        weights: floating point, square in the last two dimensions.
        lengths: integers; their shape is the *first* leading dimensions of ``weights``, or broadcasts to them: (B,) or
            (B, 1) or (B, H) against (B, H, n, n). None means there is no padding.
        stochastic: whether every row of real tokens must sum to 1; values are checked when blocks are taken.
    """
    if weights.ndim < 2 or weights.size(-1) != weights.size(-2) or weights.size(-1) == 0:
        raise ValueError(
            f"weights must be (..., n, n) with n >= 1, got shape {tuple(weights.shape)}; cross-attention has no walk"
        )
    if weights.dtype not in ROW_SUM_TOLERANCE:
        known = ", ".join(str(dtype) for dtype in ROW_SUM_TOLERANCE)
        raise ValueError(f"weights must be one of {known}, got {weights.dtype}; convert them with .to(torch.float32)")
    shape, n = weights.shape[:-2], weights.size(-1)
    flat = weights.detach().reshape(-1, n, n)
    return Walks(flat, check_lengths(lengths, shape, n), shape, stochastic)


def check_lengths(lengths: Tensor | None, shape: torch.Size, n: int) -> Tensor:
    """Return one length for each of the matrices of leading ``shape``, flattened."""
    if lengths is None:
        return torch.full((shape.numel(),), n)
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be integers, got {lengths.dtype}; a mask gives them by mask.sum(-1)")
    lengths = lengths.detach().cpu()
    if lengths.numel() and not (lengths.min() >= 1 and lengths.max() <= n):
        bad = lengths[(lengths < 1) | (lengths > n)][0].item()
        raise ValueError(
            f"lengths must lie in [1, {n}], got {bad}; leave out sequences without tokens, and pass the padded weights"
        )
    missing = len(shape) - lengths.ndim
    if missing < 0 or any(size not in (1, full) for size, full in zip(lengths.shape, shape, strict=False)):
        raise ValueError(
            f"lengths of shape {tuple(lengths.shape)} do not fit weights with leading shape {tuple(shape)}; "
            "their dimensions must be the first of the leading ones"
        )
    return lengths.reshape(lengths.shape + (1,) * missing).expand(shape).reshape(-1)
