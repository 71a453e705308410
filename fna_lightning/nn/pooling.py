"""Pooling of the tokens of a sequence."""

import torch
from torch import Tensor, nn


class Pooling(nn.Module):
    """Pools (B, N, D) tokens to (B, D), ignoring padding except for "max_all".

    Args:
        kind: "mean", "max", "max_all" (padding included, as in the authors' code), "cls" (the first token) or
            "attention": a mean weighted by the softmax of a learned score per token (Hassani et al., 2021, "Escaping
            the big data paradigm with compact transformers").
        dim: width of a token; needed by "attention" only.
    """

    KINDS = ("mean", "max", "max_all", "cls", "attention")

    def __init__(self, kind: str = "mean", dim: int | None = None) -> None:
        super().__init__()
        if kind not in self.KINDS:
            raise ValueError(f"unknown pooling {kind!r}; choose one of {', '.join(self.KINDS)}")
        self.kind = kind
        if kind == "attention":
            if dim is None:
                raise ValueError(
                    "pooling 'attention' learns a score per token and needs the width of a token; pass dim"
                )
            self.score = nn.Linear(dim, 1)

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """Pool over the tokens where the (B, N) mask ``real`` is True; the result of a sequence without any is 0."""
        if self.kind == "cls":
            return x[:, 0]
        if self.kind == "max_all":
            return x.amax(dim=1)
        if self.kind == "attention":
            return self._weighted(x, real)
        if real is None:
            return x.mean(dim=1) if self.kind == "mean" else x.amax(dim=1)
        real = real[..., None]
        if self.kind == "mean":
            return (x * real).sum(dim=1) / real.sum(dim=1).clamp(min=1)
        peak = x.masked_fill(~real, -torch.inf).amax(dim=1)
        return peak.masked_fill(~real.any(dim=1), 0.0)

    def _weighted(self, x: Tensor, real: Tensor | None) -> Tensor:
        score = self.score(x)[..., 0]  # (B, N)
        if real is not None:
            # Not -inf: the softmax of a row of -inf would be NaN. Such a row gets weight 0 below.
            score = score.masked_fill(~real, torch.finfo(score.dtype).min)
        weights = score.softmax(dim=1)
        if real is not None:
            weights = weights * real
        return (weights[:, None, :] @ x)[:, 0]

    def extra_repr(self) -> str:
        return self.kind
