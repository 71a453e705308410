"""Distances between tokens, exact for small distances, where the power law varies most.

At distance 0 the derivative of a distance is 0, a subgradient, and so are all higher ones. The squared distances are
smooth there: their second derivative is 2 times the identity. An attention that is a function of r^2 (Gaussian,
Student) is therefore computed from squared distances.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from fna_lightning.attention.pairwise import (
    distances,
    exact_distances,
    root,
    squared_distances,
    subtracted_squares,
)
from fna_lightning.attention.transforms import is_exporting

# Coefficients of the squared angle as a power series of the squared chord s: s + s^2 / 12 + s^3 / 90 + ...
# Below SMALL_CHORD its error is less than the resolution of float64.
SQUARED_ANGLE = (1.0, 1 / 12, 1 / 90, 1 / 560, 1 / 3150, 1 / 16632, 1 / 84084)
SMALL_CHORD = 1e-2


def distance_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype in which the distances of these queries are computed: float32, or float64 for float64."""
    return torch.promote_types(q.dtype, torch.float32)


def unit(x: Tensor) -> Tensor:
    """Return the vectors normalized to length 1; a zero vector stays 0, with a finite gradient."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0.0, 1.0)


def euclidean(q: Tensor, k: Tensor) -> Tensor:
    """Return |q_i - k_j| as (..., n, m), at least in float32."""
    # An exported program contains no cdist, which needs constant lengths there.
    return _pairs(q, k, distances, exact_distances, lambda q, k: root(subtracted_squares(q, k)))


def squared_euclidean(q: Tensor, k: Tensor) -> Tensor:
    """Return |q_i - k_j|^2 as (..., n, m), at least in float32."""
    return _pairs(q, k, squared_distances, lambda q, k: exact_distances(q, k).square(), subtracted_squares)


def _pairs(
    q: Tensor,
    k: Tensor,
    eager: Callable[[Tensor, Tensor], Tensor],
    compiled: Callable[[Tensor, Tensor], Tensor],
    exported: Callable[[Tensor, Tensor], Tensor],
) -> Tensor:
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    if is_exporting():
        return exported(q, k)
    if torch.compiler.is_compiling():
        # torch.compile does not trace functions with their own forward-mode derivative.
        return compiled(q, k)
    if q.shape[:-2] != k.shape[:-2]:
        batch = torch.broadcast_shapes(q.shape[:-2], k.shape[:-2])
        q, k = q.expand(*batch, *q.shape[-2:]), k.expand(*batch, *k.shape[-2:])
    return eager(q, k)


def geodesic(q: Tensor, k: Tensor) -> Tensor:
    """Return the angle between q_i and k_j as (..., n, m).

    arccos(q.k) loses half the digits near 0 and has an infinite gradient there; 2 atan2(|q - k|, |q + k|) of the
    unit vectors is the same angle without these errors.
    """
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    q, k = unit(q), unit(k)
    return 2.0 * torch.atan2(euclidean(q, k), euclidean(q, -k))


def squared_geodesic(q: Tensor, k: Tensor) -> Tensor:
    """Return the squared angle between q_i and k_j as (..., n, m); it is smooth at angle 0."""
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    q, k = unit(q), unit(k)
    return squared_angle(squared_euclidean(q, k), squared_euclidean(q, -k))


def squared_angle(s: Tensor, opposite: Tensor) -> Tensor:
    """Return the squared angle of unit vectors with squared chord ``s``, and ``opposite`` to the antipode."""
    near = s < SMALL_CHORD
    small = s.masked_fill(~near, 0.0)
    series = torch.zeros_like(small)
    for coefficient in reversed(SQUARED_ANGLE):
        series = (series + coefficient) * small
    angle = 2.0 * torch.atan2(s.masked_fill(near, 1.0).sqrt(), root(opposite))
    return torch.where(near, series, angle.square())


def bfloat16_parts(x: Tensor) -> list[Tensor]:
    """Return three bfloat16 tensors, of eight bits of mantissa each, whose sum is the float32 tensor ``x``."""
    parts = []
    for _ in range(3):
        parts.append(x.bfloat16())
        x = x - parts[-1].float()
    return parts
