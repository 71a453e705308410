"""Many tokens to one vector, over real tokens only."""

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Pools (B, N, D) tokens to (B, D).

    Args:
        kind: "mean", "max" or "cls" (the first token).
    """

    KINDS = ("mean", "max", "cls")

    def __init__(self, kind: str = "mean") -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"unknown pooling {kind!r}; choose one of {', '.join(self.KINDS)}")
        self.kind = kind

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Pool over the tokens where the (B, N) mask ``real`` is True; a sequence without any gives 0."""
        if self.kind == "cls":
            return x[:, 0]
        if real is None:
            return x.mean(dim=1) if self.kind == "mean" else x.amax(dim=1)
        real = real[..., None]
        if self.kind == "mean":
            return (x * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        peak = x.masked_fill(~real, -torch.inf).amax(dim=1)
        return peak.masked_fill(~real.any(dim=1), 0.0)

    def extra_repr(self) -> str:
        return self.kind
