"""Weyl's law: the eigenvalues of the attention operator grow as lambda_j ~ j^alpha, like the fractional Laplacian's."""

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
    """Return the eigenvalues lambda_j = -log(eta_j) / eps^(alpha/2) of the FNA operator on points, from lambda_0 = 0.

    They are in ascending order. eta_j are the eigenvalues of the self-attention of the points with kappa = sqrt(eps),
    computed from its symmetric form. If rounding made eta_j 0 or negative, lambda_j is NaN; these come last.

    Args:
        alpha: Levy index in [1, 2].
        n: number of equispaced points on the circle S^1 (arc length, d_M = 1); ignored if ``points`` is set.
        eps: squared distance scale; the law holds between 1/n and kappa, better as n grows and eps falls.
        points: (n, d) to use instead of the circle.
        manifold: "euclidean" or "sphere", for ``points``.
        intrinsic_dim: intrinsic dimension of ``points``; None means d, or d - 1 on the sphere.

    Example:
        >>> from fna_lightning.graph import log_log_slope
        >>> round(log_log_slope(weyl_spectrum(2.0), 10, 50), 2)
        2.05
    """
    if not eps > 0.0:
        raise ValueError(f"eps must be positive, got {eps}; the paper uses 1e-4")
    if points is None:
        if n < 2:
            raise ValueError(f"a spectrum needs n >= 2 points, got {n}")
        angle = 2.0 * math.pi / n * torch.arange(n, dtype=torch.float64)
        points, manifold, intrinsic_dim = torch.stack([angle.cos(), angle.sin()], dim=-1), "sphere", 1.0
    elif points.ndim != 2:
        raise ValueError(f"points must be (n, d), got shape {tuple(points.shape)}; pass one set of points at a time")
    if intrinsic_dim is None:
        intrinsic_dim = points.size(-1) - (manifold == "sphere")
    x = points.detach().to("cpu", torch.float64)
    weights = attention_weights(x, x, alpha=alpha, kappa=math.sqrt(eps), manifold=manifold, intrinsic_dim=intrinsic_dim)
    eta = torch.linalg.eigvalsh(balance(weights)[0]).flip(0)
    return -(eta.clamp(max=1.0).log()) / eps ** (alpha / 2)
