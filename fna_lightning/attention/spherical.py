"""Fractional neural attention on the unit sphere: the same power law of the geodesic distance."""

from torch import Tensor

from fna_lightning.attention.distance import geodesic, unit
from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.inputs import count_heads
from fna_lightning.attention.masks import AttentionMask


class Spherical(Fractional):
    """``Fractional`` with the angle between query and key as distance; queries and keys are normalized to length 1.

    The arguments are those of ``Fractional`` with two other defaults:

    - kappa = "auto" is the rule "sphere".
    - intrinsic_dim = None takes the head width d_H with several heads and d_H - 1, the dimension of the sphere, with
      one head (the paper's rule). The number of heads is the size of axis -3 of the queries (..., H, n, d_H); queries
      of shape (n, d_H) are one head. ``fractional_attention(manifold="sphere")`` follows the same rule.
    """

    auto_kappa = "sphere"
    radial_form = "sphere"

    def default_dimension(self, q: Tensor) -> float:
        # S^0 consists of two points; its dimension 0 has no kernel.
        return max(1, q.size(-1) - 1) if count_heads(q) == 1 else q.size(-1)

    def observe_keys(self, k: Tensor, mask: AttentionMask) -> None:
        super().observe_keys(unit(k), mask)

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return geodesic(q, k)
