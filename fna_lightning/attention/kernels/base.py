"""A kernel is one way to compute an attention; it says what it cannot do before it is asked to do it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from fna_lightning.attention.base import Attention
    from fna_lightning.attention.masks import AttentionMask
    from fna_lightning.attention.radial import Radial


@dataclass(frozen=True)
class Call:
    """One evaluation of an attention: what a kernel may look at to accept or refuse it."""

    attention: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    seen: AttentionMask
    dropout: float
    # functools.cached_property takes a lock, which torch.compile cannot trace
    _radial: list[Radial | None] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def radial(self) -> Radial | None:
        """The attention as a function of a distance, for these queries; None if it is no such function."""
        if not self._radial:
            self._radial.append(self.attention.radial(self.q))
        return self._radial[0]


class Kernel(ABC):
    """Computes the output of an attention, exactly."""

    name: str
    # whether an exported program may hold it: operators of PyTorch alone, and no loop over a length
    portable = True

    def unavailable(self) -> str | None:
        """Return why this machine cannot run the kernel, or None."""
        return None

    def refusal(self, call: Call) -> str | None:
        """Return why the kernel cannot compute this call, or None."""
        return None

    @abstractmethod
    def run(self, call: Call) -> Tensor:
        """Return the (..., N, D_v) output."""
