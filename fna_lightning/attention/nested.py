"""Nested tensors: sequences of different lengths in one tensor, padded to dense tensors for one call."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Padded:
    """A nested tensor as a dense tensor.

    Attributes:
        dense: (B, ..., n, width), zero after the end of a sequence; n is the longest length.
        lengths: (B,) lengths of the sequences.
        source: the nested tensor.
    """

    dense: Tensor
    lengths: Tensor
    # The type annotations of PyTorch do not know the methods of a nested tensor.
    source: Any

    def tokens(self) -> Tensor:
        """Return which of the (B, n) tokens are not padding."""
        return torch.arange(self.dense.size(-2), device=self.lengths.device) < self.lengths[:, None]

    def nest(self, dense: Tensor, token_axis: int = -2) -> Tensor:
        """Return the tokens of another dense tensor with the same lengths as a nested tensor of the same layout."""
        token_axis %= dense.dim()
        if self.source.layout == torch.strided:
            parts = [x.narrow(token_axis - 1, 0, n) for x, n in zip(dense, self.lengths.tolist(), strict=True)]
            return torch.nested.as_nested_tensor(parts)
        # The same offsets give the same symbolic length, so that the result can be added to the source.
        values = dense.transpose(1, token_axis)[self.tokens()]
        return torch.nested.nested_tensor_from_jagged(values, self.source.offsets()).transpose(1, token_axis)


def pad(name: str, x: Any) -> Padded:
    """Return a nested tensor (B, ..., tokens, width) with its padded form; gradients flow back to it.

    Raises:
        ValueError: if the lengths are not those of the tokens, or the tensor is a slice of another nested tensor.
    """
    if x.layout == torch.strided:
        parts = x.unbind()
        if len({(*part.shape[:-2], part.size(-1)) for part in parts}) > 1:
            raise ValueError(
                f"the sequences of the nested tensor {name} may differ along axis -2, the tokens, only; got "
                f"{tuple(parts[0].shape)} and others"
            )
        lengths = torch.tensor([part.size(-2) for part in parts], device=x.device)
        return Padded(torch.nested.to_padded_tensor(x.contiguous(), 0.0), lengths, x)
    ragged = next(axis for axis, size in enumerate(x.shape) if isinstance(size, torch.SymInt))
    if ragged != x.dim() - 2:
        raise ValueError(
            f"axis -2 of the nested tensor {name} must be the tokens, and its lengths differ along axis {ragged} of "
            f"{x.dim()}; pass {name}.transpose({ragged}, {x.dim() - 2})"
        )
    if x.lengths() is not None:
        raise ValueError(f"{name} is a slice of another nested tensor; call .contiguous() on it")
    # The derivative of to_padded_tensor needs the tokens on axis 1 (PyTorch 2.13).
    dense = torch.nested.to_padded_tensor(x.transpose(1, ragged), 0.0).transpose(1, ragged)
    return Padded(dense, x.offsets().diff(), x)


def length_mask(keys: Padded, attn_mask: Tensor | None) -> Tensor:
    """Return ``attn_mask`` without the padding of the keys, broadcastable to (B, ..., n, m); True means allowed."""
    batch, *heads = keys.dense.shape[:-2]
    tokens = keys.tokens().view(batch, *[1] * len(heads), 1, -1)
    if attn_mask is None:
        return tokens
    if attn_mask.is_floating_point():
        return attn_mask.masked_fill(~tokens, -torch.inf)
    # A mask of another dtype than bool is refused with the call.
    return attn_mask & tokens if attn_mask.dtype is torch.bool else attn_mask


def check_same_lengths(first: str, a: Padded | None, second: str, b: Padded | None) -> None:
    """Raise unless both are nested with the same lengths, or neither is nested."""
    if (a is None) != (b is None):
        raise ValueError(f"{first} and {second} must both be nested or both be dense")
    if a is not None and b is not None and not torch.equal(a.lengths, b.lengths):
        raise ValueError(
            f"{first} and {second} must have the same lengths, got {a.lengths.tolist()} and {b.lengths.tolist()}"
        )
