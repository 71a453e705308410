"""Distances of all pairs as functions with derivatives of every order, in O(n m) memory.

    r_ij = |q_i - k_j|                      distances
    s_ij = |q_i - k_j|^2                    squared_distances
    b_ij = u_i . (q_i - k_j)                difference_products
    a_i  = sum_j w_ij (q_i - k_j)           weighted_differences

The derivative of each of them consists of the last two, so all derivatives exist, in reverse and forward mode and under
``vmap``. Each is computed from the differences themselves, ``COORDINATES`` at a time: |q|^2 + |k|^2 - 2 q.k would lose
the digits of small distances, and autograd would store all (n, m, d) differences.

At distance 0 the derivative of r is 0, a subgradient of the norm, and so are all higher ones. s is smooth: its first
derivative is 0 there, and the second is 2 times the identity.

All functions take (..., n, d) queries and (..., m, d) keys with equal leading axes.
"""

import inspect
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from fna_lightning.attention.transforms import PLAIN_TENSORS, is_plain, map_legacy

COORDINATES = 8


def exact_distances(q: Tensor, k: Tensor) -> Tensor:
    """Return the distances by PyTorch's function, which has no second derivative.

    Beyond 25 rows it uses a matrix product by default, and in float32 a token is then up to 0.07 away from itself.
    Its direct mode is exact.
    """
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


def subtracted_squares(q: Tensor, k: Tensor) -> Tensor:
    """Return the squared distances by subtraction, with PyTorch operators only."""
    return sum_of(difference.square().sum(dim=-1) for difference, _ in _differences(q, k))


def sum_of(tensors: Iterator[Tensor]) -> Tensor:
    """Return the sum of at least one tensor."""
    total = next(tensors)
    for tensor in tensors:
        total = total + tensor
    return total


def _differences(q: Tensor, k: Tensor) -> Iterator[tuple[Tensor, slice]]:
    """Yield q_i - k_j as (..., n, m, coordinates) and which coordinates they are."""
    for start in range(0, max(1, q.size(-1)), COORDINATES):
        part = slice(start, start + COORDINATES)
        yield q[..., :, None, part] - k[..., None, :, part], part


def inverse_or_zero(r: Tensor) -> Tensor:
    """Return 1 / r, and 0 with derivative 0 where r is 0."""
    zero = r == 0.0
    return r.masked_fill(zero, 1.0).reciprocal().masked_fill(zero, 0.0)


def root(s: Tensor) -> Tensor:
    """Return the square root, with derivative 0 where s is 0."""
    zero = s == 0.0
    return s.masked_fill(zero, 1.0).sqrt().masked_fill(zero, 0.0)


def _reads_memory(q: Tensor, k: Tensor) -> bool:
    return is_plain() and type(q) in PLAIN_TENSORS and type(k) in PLAIN_TENSORS


class _PairFunction(Function):
    """A function of pairs; the derivatives get its inputs and, if there is one, the last saved tensor."""

    generate_vmap_rule = True

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)


class _Distances(_PairFunction):
    @staticmethod
    def forward(q: Tensor, k: Tensor) -> Tensor:
        return exact_distances(q, k) if _reads_memory(q, k) else subtracted_squares(q, k).sqrt()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs, output)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, r = ctx.saved_tensors

        def gradients(grad: Tensor) -> tuple[Tensor, ...]:
            if not torch.is_grad_enabled() and _reads_memory(q, grad):
                return _distance_gradients(grad, q, k, r, *ctx.needs_input_grad)
            return _weighted_gradients(grad * inverse_or_zero(r), q, k, *ctx.needs_input_grad)

        return _for_inputs(map_legacy(gradients, grad), *ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Any, q_tangent: Tensor | None, k_tangent: Tensor | None) -> Tensor:
        q, k, r = ctx.saved_tensors
        return inverse_or_zero(r) * _half_tangent(q, k, q_tangent, k_tangent)


class _SquaredDistances(_PairFunction):
    @staticmethod
    def forward(q: Tensor, k: Tensor) -> Tensor:
        return exact_distances(q, k).square_() if _reads_memory(q, k) else subtracted_squares(q, k)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        ctx.save_for_backward(*inputs, output)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, s = ctx.saved_tensors

        def gradients(grad: Tensor) -> tuple[Tensor, ...]:
            if not torch.is_grad_enabled() and _reads_memory(q, grad):
                r = s.sqrt()
                return _distance_gradients(2.0 * r * grad, q, k, r, *ctx.needs_input_grad)
            return _weighted_gradients(2.0 * grad, q, k, *ctx.needs_input_grad)

        return _for_inputs(map_legacy(gradients, grad), *ctx.needs_input_grad)

    @staticmethod
    def jvp(ctx: Any, q_tangent: Tensor | None, k_tangent: Tensor | None) -> Tensor:
        q, k = ctx.saved_tensors
        return 2.0 * _half_tangent(q, k, q_tangent, k_tangent)


def _distance_gradients(grad: Tensor, q: Tensor, k: Tensor, r: Tensor, for_q: bool, for_k: bool) -> tuple[Tensor, ...]:
    """Return the needed gradients of q and k for a gradient of the distances, by PyTorch's function."""
    backward = torch.ops.aten._cdist_backward
    grads = []
    if for_q:
        grads.append(backward(grad.contiguous(), q, k, 2.0, r))
    if for_k:
        grads.append(backward(grad.mT.contiguous(), k, q, 2.0, r.mT.contiguous()))
    return tuple(grads)


def _weighted_gradients(weights: Tensor, q: Tensor, k: Tensor, for_q: bool, for_k: bool) -> tuple[Tensor, ...]:
    """Return the same gradients as sums of weighted differences, which can be differentiated."""
    grads = []
    if for_q:
        grads.append(weighted_differences(weights, q, k))
    if for_k:
        grads.append(weighted_differences(weights.mT, k, q))
    return tuple(grads)


def _for_inputs(grads: tuple[Tensor, ...], *needed: bool) -> tuple[Tensor | None, ...]:
    """Return the gradients of all inputs: None for those that are not needed."""
    remaining = iter(grads)
    return tuple(next(remaining) if need else None for need in needed)


def _half_tangent(q: Tensor, k: Tensor, q_tangent: Tensor | None, k_tangent: Tensor | None) -> Tensor:
    """Return half of the tangent of the squared distances."""
    parts = []
    if q_tangent is not None:
        parts.append(difference_products(q_tangent, q, k))
    if k_tangent is not None:
        parts.append(difference_products(k_tangent, k, q).mT)
    return sum_of(iter(parts))


class _DifferenceProducts(_PairFunction):
    @staticmethod
    def forward(u: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return sum_of((u[..., :, None, part] * difference).sum(dim=-1) for difference, part in _differences(q, k))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        u, q, k = ctx.saved_tensors
        return weighted_differences(grad, q, k), grad.sum(dim=-1, keepdim=True) * u, -(grad.mT @ u)

    @staticmethod
    def jvp(ctx: Any, u_tangent: Tensor | None, q_tangent: Tensor | None, k_tangent: Tensor | None) -> Tensor:
        u, q, k = ctx.saved_tensors
        parts = []
        if u_tangent is not None:
            parts.append(difference_products(u_tangent, q, k))
        if q_tangent is not None:
            parts.append((u * q_tangent).sum(dim=-1, keepdim=True).expand(*u.shape[:-1], k.size(-2)))
        if k_tangent is not None:
            parts.append(-(u @ k_tangent.mT))
        return sum_of(iter(parts))


class _WeightedDifferences(_PairFunction):
    @staticmethod
    def forward(w: Tensor, q: Tensor, k: Tensor) -> Tensor:
        sums = [(w[..., None] * difference).sum(dim=-2) for difference, _ in _differences(q, k)]
        return torch.cat(sums, dim=-1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w, q, k = ctx.saved_tensors
        return difference_products(grad, q, k), w.sum(dim=-1, keepdim=True) * grad, -(w.mT @ grad)

    @staticmethod
    def jvp(ctx: Any, w_tangent: Tensor | None, q_tangent: Tensor | None, k_tangent: Tensor | None) -> Tensor:
        w, q, k = ctx.saved_tensors
        parts = []
        if w_tangent is not None:
            parts.append(weighted_differences(w_tangent, q, k))
        if q_tangent is not None:
            parts.append(w.sum(dim=-1, keepdim=True) * q_tangent)
        if k_tangent is not None:
            parts.append(-(w @ k_tangent))
        return sum_of(iter(parts))


# PyTorch asks for the signature of `forward` at every call, and computing it takes longer than a small function.
for _function in (_Distances, _SquaredDistances, _DifferenceProducts, _WeightedDifferences):
    _function.forward.__signature__ = inspect.signature(_function.forward)  # type: ignore[union-attr]


def distances(q: Tensor, k: Tensor) -> Tensor:
    """Return |q_i - k_j| as (..., n, m)."""
    return _Distances.apply(q, k)


def squared_distances(q: Tensor, k: Tensor) -> Tensor:
    """Return |q_i - k_j|^2 as (..., n, m)."""
    return _SquaredDistances.apply(q, k)


def difference_products(u: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return u_i . (q_i - k_j) as (..., n, m) for (..., n, d) vectors ``u``."""
    return _DifferenceProducts.apply(u, q, k)


def weighted_differences(w: Tensor, q: Tensor, k: Tensor) -> Tensor:
    """Return sum_j w_ij (q_i - k_j) as (..., n, d) for (..., n, m) weights ``w``."""
    return _WeightedDifferences.apply(w, q, k)
