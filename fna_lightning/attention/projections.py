"""Projections of tokens to queries and keys: the five rows of the paper's table.

    linear, untied             W_Q, W_K learned
    linear, tied               W_Q learned, W_K = W_Q
    orthogonal, H = 1, untied  W_Q = I, W_K learned in O(d): one rotation is enough (Proposition 1)
    orthogonal, H = 1, tied    W_Q = W_K = I: no parameters
    orthogonal, H > 1          W_Q (and W_K if untied) learned in O(d), the heads are row blocks

None of them has a bias.
"""

from abc import ABC, abstractmethod

from torch import Tensor, nn
from torch.nn.utils.parametrizations import orthogonal

from fna_lightning.attention.linear import Linear

ORTHOGONAL_MAPS = ("matrix_exp", "cayley", "householder")


class Projection(nn.Module, ABC):
    """Maps tokens (B, N, D) to queries and keys (B, N, D), which are split into heads afterwards.

    Args:
        dim: width of a token.
        num_heads: number of heads the result is split into.
        tied: whether queries and keys use the same map.
    """

    def __init__(self, dim: int, num_heads: int, *, tied: bool = False) -> None:
        super().__init__()
        self.tied = tied
        self.query, key = self.maps(dim, num_heads)
        # A tied map is registered once, so that it is counted, saved and trained once.
        self._key = None if tied else key

    @abstractmethod
    def maps(self, dim: int, num_heads: int) -> tuple[nn.Module, nn.Module]:
        """Return the maps to queries and to keys; the second one is not used if they are tied."""

    @property
    def key(self) -> nn.Module:
        return self.query if self._key is None else self._key

    def forward(self, x: Tensor, context: Tensor) -> tuple[Tensor, Tensor]:
        """Return the queries of ``x`` and the keys of ``context``."""
        q = self.query(x)
        return q, q if self.tied and context is x else self.key(context)

    def extra_repr(self) -> str:
        return "tied" if self.tied else ""


class LinearProjection(Projection):
    """Learned linear maps without constraint."""

    def maps(self, dim: int, num_heads: int) -> tuple[nn.Module, nn.Module]:
        return linear_map(dim), linear_map(dim)


class OrthogonalProjection(Projection):
    """Maps learned in the orthogonal group, or the identity where one rotation is enough.

    Args:
        dim: width of a token.
        num_heads: number of heads the result is split into.
        tied: whether queries and keys use the same map.
        group_map: the parametrization of the orthogonal group: "matrix_exp" (the paper's), "cayley" (cheaper) or
            "householder".
    """

    def __init__(self, dim: int, num_heads: int, *, tied: bool = False, group_map: str = "matrix_exp") -> None:
        if group_map not in ORTHOGONAL_MAPS:
            raise ValueError(f"unknown group_map {group_map!r}; choose one of {', '.join(ORTHOGONAL_MAPS)}")
        self.group_map = group_map
        super().__init__(dim, num_heads, tied=tied)

    def maps(self, dim: int, num_heads: int) -> tuple[nn.Module, nn.Module]:
        query = nn.Identity() if num_heads == 1 else self._rotation(dim)
        return query, nn.Identity() if self.tied else self._rotation(dim)

    def _rotation(self, dim: int) -> nn.Module:
        return orthogonal(linear_map(dim), orthogonal_map=self.group_map)


def linear_map(dim: int) -> nn.Linear:
    """Return a linear layer without bias, initialized as in ``torch.nn.MultiheadAttention``."""
    linear = Linear(dim, dim, bias=False)
    nn.init.xavier_uniform_(linear.weight)
    return linear
