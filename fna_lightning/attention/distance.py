"""Distances between tokens, exact where they are small.

The power law lives at small distances. ``torch.cdist`` goes through a matrix product beyond 25 rows, and in float32 a
token is then up to 0.07 away from itself; the direct mode is exact, and its gradient at distance 0 is 0.
"""

import torch
from torch import Tensor

# of a distance, subtracted at once in an exported program
COORDINATES = 8


def unit(x: Tensor) -> Tensor:
    """Return the vectors with length 1; a zero vector has no direction and stays 0, with a finite gradient."""
    length = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    return x / length.masked_fill(length == 0.0, 1.0)


def euclidean(q: Tensor, k: Tensor) -> Tensor:
    """Return |q_i - k_j| as (..., n, m), in float32 at least."""
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    if torch.compiler.is_exporting():
        return _portable(q, k)
    return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


def _portable(q: Tensor, k: Tensor) -> Tensor:
    """Return the same by subtraction: cdist cannot be exported with a length that is not known.

    A few coordinates at a time, so that at most ``COORDINATES`` matrices are alive.
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
    unit vectors is the same angle, exact.
    """
    if q.dtype in (torch.float16, torch.bfloat16):
        q, k = q.float(), k.float()
    q, k = unit(q), unit(k)
    return 2.0 * torch.atan2(euclidean(q, k), euclidean(q, -k))
