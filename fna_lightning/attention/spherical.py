"""Fractional neural attention on the unit sphere: the same power law of the geodesic distance."""

from torch import Tensor

from fna_lightning.attention.distance import geodesic
from fna_lightning.attention.fractional import Fractional


class Spherical(Fractional):
    """``Fractional`` with the angle between query and key as distance; both are normalised here.

    Args are those of ``Fractional``, except that "auto" is the rule "sphere", and that with one head ``intrinsic_dim``
    defaults to the dimension d - 1 of the sphere itself (with several heads, to the head width, as in the paper).
    """

    auto_kappa = "sphere"
    on_sphere = True

    def dimension(self, q: Tensor) -> float:
        if self.intrinsic_dim is not None:
            return self.intrinsic_dim
        one_head = q.dim() >= 3 and q.size(-3) == 1
        # S^0 is two points; its dimension 0 has no kernel
        return max(1, q.size(-1) - 1) if one_head else q.size(-1)

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return geodesic(q, k)

    @staticmethod
    def radial_kind() -> type[Fractional]:
        return Spherical

    def as_dot_product(self, q: Tensor, k: Tensor) -> None:
        """Return None: an angle is no dot product."""
        return
