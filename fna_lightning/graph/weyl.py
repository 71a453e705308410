"""Weyl's law: eigenvalues of the attention operator grow as the fractional Laplacian's, lambda_j ~ j^alpha."""

import math

import torch
from torch import Tensor

from fna_lightning.attention import attention_weights
from fna_lightning.graph.reversible import balance


def weyl_spectrum(
    alpha: float,
    n: int = 500,
    eps: float = 1e-4,
    *,
    points: Tensor | None = None,
    manifold: str = "euclidean",
    intrinsic_dim: float | None = None,
) -> Tensor:
    """Return lambda_j = -log(eta_j) / eps^(alpha/2), ascending from lambda_0 = 0, of the FNA operator between points.

    eta_j are the eigenvalues of the attention of the points to themselves with kappa = sqrt(eps), taken from its
    symmetric form. An eta_j that rounding has made 0 or negative gives NaN, at the end.

    Args:
        alpha: Levy index in [1, 2].
        n: number of equispaced points on the circle S^1 (arc length, d_M = 1); unused when ``points`` are given.
        eps: squared distance scale; the law holds between 1/n and kappa, better as n grows and eps falls.
        points: (n, d) to use instead of the circle.
        manifold: of the given points, "euclidean" or "sphere".
        intrinsic_dim: of the given points; None takes d, or d - 1 on the sphere.

    Example:
        >>> round(log_log_slope(weyl_spectrum(2.0), 10, 50), 2)
        2.05
    """
    if not eps > 0.0:
        raise ValueError(f"eps must be positive, got {eps}; the paper takes 1e-4")
    if points is None:
        if n < 2:
            raise ValueError(f"a spectrum needs n >= 2 points, got {n}")
        angle = 2.0 * math.pi / n * torch.arange(n, dtype=torch.float64)
        points, manifold, intrinsic_dim = torch.stack([angle.cos(), angle.sin()], dim=-1), "sphere", 1.0
    elif points.ndim != 2:
        raise ValueError(f"points must be (n, d), got shape {tuple(points.shape)}; one cloud at a time")
    if intrinsic_dim is None:
        intrinsic_dim = points.size(-1) - (manifold == "sphere")
    x = points.detach().to("cpu", torch.float64)
    walk = attention_weights(x, x, alpha=alpha, kappa=math.sqrt(eps), manifold=manifold, intrinsic_dim=intrinsic_dim)
    eta = torch.linalg.eigvalsh(balance(walk)[0]).flip(0)
    return -(eta.clamp(max=1.0).log()) / eps ** (alpha / 2)


def log_log_slope(values: Tensor, first: int, last: int) -> float:
    """Return the least-squares slope of log(values[first:last]) against the logarithm of their ranks.

    Ranks count from 1, as Weyl's law counts: the rank of lambda is the number of eigenvalues up to it, and lambda_0 =
    0 of the constant function is the first.
    """
    if not 1 <= first < last - 1 < len(values):
        raise ValueError(
            f"the window [first, last) must hold two or more of {len(values)} values and not the first, "
            f"got [{first}, {last})"
        )
    x = torch.arange(first + 1, last + 1, dtype=torch.float64).log()
    y = values[first:last].double().log()
    x = x - x.mean()
    return ((x @ y) / (x @ x)).item()
