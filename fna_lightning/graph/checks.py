"""Checks of the input of every graph analysis: finite, square, row-stochastic, valid lengths.

``MatrixBatch`` holds a checked batch and yields the blocks of real tokens, without padding. All analyses run in float64
on the CPU: their matrices are few and small, and lower precision would hide small spectral gaps.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

# each bfloat16 weight has 8 significant bits, so a row sums to 1 only roughly
ROW_SUM_TOLERANCE = {torch.float16: 2e-2, torch.bfloat16: 2e-2, torch.float32: 1e-4, torch.float64: 1e-4}


@dataclass(frozen=True)
class MatrixBatch:
    """A checked batch of attention matrices.

    Attributes:
        values: (N, n, n), the leading dimensions flattened.
        lengths: (N,) number of real tokens, which come first.
        shape: the leading dimensions of the caller's tensor.
        stochastic: whether every row of real tokens must sum to 1.
    """

    values: Tensor
    lengths: Tensor
    shape: torch.Size
    stochastic: bool

    def blocks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield (indices, block) for each distinct length: the matrices of that length and their real tokens.

        Blocks are float64. The rows of stochastic blocks are normalized again, which corrects rounding only.
        """
        for length in self.lengths.unique().tolist():
            indices = (self.lengths == length).nonzero()[:, 0]
            all_selected = len(indices) == len(self.values)
            selected = self.values if all_selected else self.values[indices.to(self.values.device)]
            block = selected[:, :length, :length].to("cpu", torch.float64)
            sums = block.sum(dim=-1, keepdim=True)
            self._check_values(block, sums, indices)
            if self.stochastic:
                # multiply in place if the conversion made a copy: allocating memory costs more than multiplying
                scale = sums.reciprocal_()
                block = block * scale if block.data_ptr() == self.values.data_ptr() else block.mul_(scale)
            yield indices, block

    def scalars(self, measure: Callable[[Tensor], Tensor]) -> Tensor:
        """Return ``measure`` of every matrix, a function from (m, length, length) blocks to m numbers."""
        result = torch.empty(len(self.values), dtype=torch.float64)
        for indices, block in self.blocks():
            result[indices] = measure(block)
        return self.restore(result)

    def restore(self, result: Tensor) -> Tensor:
        """Return (N, ...) results in the caller's leading shape and on its device."""
        return result.reshape(self.shape + result.shape[1:]).to(self.values.device)

    def _check_values(self, block: Tensor, sums: Tensor, indices: Tensor) -> None:
        # a row sum is finite exactly if all weights of the row are; checking sums takes a tenth of the time
        if not sums.isfinite().all():
            m, i = (~sums[..., 0].isfinite()).nonzero()[0].tolist()
            bad = block[m, i][~block[m, i].isfinite()][0].item()
            raise ValueError(
                f"weights must be finite, got {bad} in row {i} of matrix {self._index(indices[m])}; "
                "check for a diverged model, or a masked row that was not set to 0"
            )
        if block.amin() < 0:
            m, i, j = (block < 0).nonzero()[0].tolist()
            raise ValueError(
                f"weights must not be negative, got {block[m, i, j].item():.4g} at ({i}, {j}) of matrix "
                f"{self._index(indices[m])}; pass the weights after the softmax"
            )
        tolerance = ROW_SUM_TOLERANCE[self.values.dtype]
        if self.stochastic and ((sums - 1).abs() > tolerance).any():
            m, i = ((sums[..., 0] - 1).abs() > tolerance).nonzero()[0].tolist()
            total = sums[m, i, 0].item()
            remedy = (
                "a query that attends to nothing has no transition probabilities: leave it out through `lengths`"
                if total == 0
                else "pass the weights after the softmax, with the padded keys masked"
            )
            raise ValueError(
                f"rows must sum to 1 within {tolerance:g}, got {total:.6g} in row {i} of matrix "
                f"{self._index(indices[m])} (length {block.size(-1)}); {remedy}"
            )

    def _index(self, flat: Tensor) -> tuple[int, ...]:
        return tuple(int(index) for index in torch.unravel_index(flat, self.shape)) if self.shape else ()


def check_weights(weights: Tensor, lengths: Tensor | None = None, *, stochastic: bool = True) -> MatrixBatch:
    """Return the checked batch of (..., n, n) ``weights``.

    Args:
        weights: floating point, square in the last two dimensions.
        lengths: integers whose shape matches the *first* leading dimensions of ``weights``, or broadcasts to them: (B,)
            or (B, 1) or (B, H) for (B, H, n, n). None means no padding.
        stochastic: whether every row of real tokens must sum to 1; values are checked by ``blocks``.
    """
    if weights.ndim < 2 or weights.size(-1) != weights.size(-2) or weights.size(-1) == 0:
        raise ValueError(
            f"weights must be (..., n, n) with n >= 1, got shape {tuple(weights.shape)}; pass self-attention, "
            "cross-attention is not a graph of one token sequence"
        )
    if weights.dtype not in ROW_SUM_TOLERANCE:
        supported = ", ".join(str(dtype) for dtype in ROW_SUM_TOLERANCE)
        raise ValueError(
            f"weights must be one of {supported}, got {weights.dtype}; convert them with .to(torch.float32)"
        )
    shape, n = weights.shape[:-2], weights.size(-1)
    flat = weights.detach().reshape(-1, n, n)
    return MatrixBatch(flat, check_lengths(lengths, shape, n), shape, stochastic)


def check_lengths(lengths: Tensor | None, shape: torch.Size, n: int) -> Tensor:
    """Return one length for each matrix of the leading ``shape``, flattened."""
    if lengths is None:
        return torch.full((shape.numel(),), n)
    if lengths.is_floating_point() or lengths.is_complex() or lengths.dtype == torch.bool:
        raise ValueError(f"lengths must be integers, got {lengths.dtype}; compute them from a mask by mask.sum(-1)")
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
