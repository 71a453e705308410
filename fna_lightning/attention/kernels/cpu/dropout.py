"""Dropout on the CPU in one pass; PyTorch's own takes a third of a small training step to draw its mask.

Whether an element is kept is a hash of a seed and its position, so the backward pass needs only the seed, and no mask
is stored. The seed is drawn from PyTorch's generator, so ``torch.manual_seed`` makes it reproducible.
"""

import inspect
from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.kernels.cpu.elementwise import threads_for
from fna_lightning.attention.transforms import map_legacy


def _drop(x: Tensor, p: float, seed: int) -> Tensor:
    x = x.contiguous()
    out = torch.empty_like(x)
    c.run("fna_dropout", c.DropoutArgs(x.data_ptr(), out.data_ptr(), x.numel(), seed, p, threads_for(x)))
    return out


class HashedDropout(torch.autograd.Function):
    """Dropout by hashing; its derivative is the same function with the same seed."""

    @staticmethod
    def forward(x: Tensor, p: float, seed: int) -> Tensor:
        return _drop(x, p, seed)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float, int], output: Tensor) -> None:
        _, ctx.p, ctx.seed = inputs

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        # Calling apply makes the derivative differentiable, too.
        (dropped,) = map_legacy(lambda grad: (HashedDropout.apply(grad, ctx.p, ctx.seed),), grad)
        return dropped, None, None

    @staticmethod
    def vmap(info: Any, in_dims: tuple[int, None, None], x: Tensor, p: float, seed: int) -> tuple[Tensor, int]:
        # Only gradients are mapped (``usable``), and every one of them gets the pattern of the forward pass.
        return torch.stack([HashedDropout.apply(sample, p, seed) for sample in x.unbind(in_dims[0])]), 0

    @staticmethod
    def jvp(ctx: Any, x: Tensor, p: None, seed: None) -> Tensor:
        return HashedDropout.apply(x, ctx.p, ctx.seed)


# PyTorch asks for the signature of `forward` at every call.
HashedDropout.forward.__signature__ = inspect.signature(HashedDropout.forward)  # type: ignore[attr-defined]


def dropout(x: Tensor, p: float) -> Tensor:
    """Return ``x`` with each element set to 0 with probability ``p``, 0 < p < 1, and the others divided by 1 - p."""
    return HashedDropout.apply(x, p, int(torch.randint(2**62, ()).item()))
