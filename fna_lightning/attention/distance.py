"""Distances between tokens, exact for small distances, where the power law varies most.

Beyond 25 rows ``torch.cdist`` uses a matrix product by default, and in float32 a token is then up to 0.07 away from
itself. Its direct mode is exact, and the gradient at distance 0 is 0.
"""

import torch
from torch import Tensor

# Number of coordinates subtracted at once in an exported program.
COORDINATES = 8


def distance_dtype(q: Tensor) -> torch.dtype:
    """Return the dtype in which the distances of these queries are computed: float32, or float64 for float64."""
    return torch.promote_types(q.dtype, torch.float32)


def unit(x: Tensor) -> Tensor:
    """Return the vectors normalized to length 1; a zero vector stays 0, with a finite gradient."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0.0, 1.0)


def euclidean(q: Tensor, k: Tensor) -> Tensor:
    """Return |q_i - k_j| as (..., n, m), at least in float32."""
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    if torch.compiler.is_exporting():
        return _exportable_euclidean(q, k)
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


def _exportable_euclidean(q: Tensor, k: Tensor) -> Tensor:
    """Return the same distances by subtraction, because cdist cannot be exported with a dynamic length.

    It takes a few coordinates at a time, so that at most ``COORDINATES`` matrices are in memory.
    """
    squared = sum(
        (a[..., :, None, :] - b[..., None, :, :]).square().sum(dim=-1)
        for a, b in zip(q.split(COORDINATES, dim=-1), k.split(COORDINATES, dim=-1), strict=True)
    )
    assert isinstance(squared, Tensor)
    return squared.sqrt()


def geodesic(q: Tensor, k: Tensor) -> Tensor:
    """Return the angle between q_i and k_j as (..., n, m).

    arccos(q.k) loses half the digits near 0 and has an infinite gradient there; 2 atan2(|q - k|, |q + k|) of the
    unit vectors is the same angle without these errors.
    """
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    q, k = unit(q), unit(k)
    return 2.0 * torch.atan2(euclidean(q, k), euclidean(q, -k))


def bfloat16_parts(x: Tensor) -> list[Tensor]:
    """Return three bfloat16 tensors, of eight bits of mantissa each, whose sum is the float32 tensor ``x``."""
    parts = []
    for _ in range(3):
        parts.append(x.bfloat16())
        x = x - parts[-1].float()
    return parts
