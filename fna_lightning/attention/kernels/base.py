"""Base class of the kernels (implementations of an attention), and the call they receive."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from fna_lightning.attention.inputs import repeat_heads

if TYPE_CHECKING:
    from fna_lightning.attention.base import Attention
    from fna_lightning.attention.masks import AttentionMask

Profile = Literal["power", "gaussian", "student"]


@dataclass(frozen=True)
class Radial:
    """An attention that is a function of a distance r, as the parameters a fused kernel needs.

    Args:
        profile: the function log C of r: "power" is -exponent * log(1 + r / kappa), "gaussian" is -(r / kappa)^2, and
            "student" is -exponent * log(1 + (r / kappa)^2).
        sphere: whether r is the angle between q and k rather than |q - k|.
        kappa: the distance scale: a number, or a tensor with one value per head, which may require gradients.
        exponent: the exponent, in the same form as ``kappa``; the Gaussian ignores it.
    """

    profile: Profile
    sphere: bool
    kappa: float | Tensor
    exponent: float | Tensor


@dataclass(frozen=True)
class Call:
    """The arguments of one evaluation of an attention; a kernel accepts or refuses the call by them."""

    attention: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    mask: AttentionMask
    dropout: float
    # Number of query heads that share a key head, which is then the number of query heads divided by it.
    group_size: int = 1
    # Lists as caches: functools.cached_property takes a lock in Python 3.11, which torch.compile cannot trace.
    _radial: list[Radial | None] = field(default_factory=list, init=False, repr=False, compare=False)
    _dot_product: list[tuple[Tensor, Tensor, float] | None] = field(
        default_factory=list, init=False, repr=False, compare=False
    )

    @property
    def radial(self) -> Radial | None:
        """The attention as a function of a distance, or None if it is no such function; evaluated once per call."""
        if not self._radial:
            self._radial.append(self.attention.radial(self.q))
        return self._radial[0]

    @property
    def dot_product(self) -> tuple[Tensor, Tensor, float] | None:
        """The attention as queries, keys and scale of a dot product, or None; evaluated once per call."""
        if not self._dot_product:
            self._dot_product.append(self.attention.as_dot_product(self.q, self.k))
        return self._dot_product[0]

    def ungrouped(self) -> Call:
        """Return the same call with as many key heads as query heads: grouped keys and values are repeated."""
        if self.group_size == 1:
            return self
        k, v = (repeat_heads(x, self.group_size) for x in (self.k, self.v))
        return replace(self, k=k, v=v, group_size=1)


class Kernel(ABC):
    """Computes the output of an attention, exactly."""

    name: str
    # Whether it computes grouped heads itself. Other kernels get repeated keys and values.
    grouped = False
    # Whether an exported program may contain it: only PyTorch operators, and no Python loop over the sequence length.
    portable = True

    def unavailable(self) -> str | None:
        """Return why this machine cannot run the kernel, or None."""
        return None

    def refusal(self, call: Call) -> str | None:
        """Return why the kernel cannot compute this call, or None."""
        return None

    @abstractmethod
    def run(self, call: Call) -> Tensor:
        """Return the (..., N, D_v) output of a call that ``refusal`` accepts."""


def four_axes(x: Tensor) -> Tensor:
    """Return (..., rows, columns) as (batch, head, rows, columns)."""
    while x.dim() < 4:
        x = x[None]
    return x.flatten(0, -4) if x.dim() > 4 else x
