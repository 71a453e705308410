"""Turning one cloud of points onto another: eigenvectors have no sign of their own, and pictures must not flip."""

import torch
from torch import Tensor


def align(points: Tensor, reference: Tensor) -> Tensor:
    """Return (n, c) ``points`` turned and mirrored about the origin to lie closest to (n, c) ``reference``.

    The orthogonal Procrustes problem: distances between points do not change.
    """
    if points.shape != reference.shape or points.ndim != 2:
        raise ValueError(
            f"points and reference must both be (n, c), got {tuple(points.shape)} and {tuple(reference.shape)}; "
            "they are the same tokens at two times"
        )
    u, _, vh = torch.linalg.svd(points.mT @ reference)
    return points @ (u @ vh)
