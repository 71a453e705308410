"""Learned alpha and kappa, one value per head, inside their ranges after any optimizer step.

alpha_h = 1 + sigmoid(a_h)            in [1, 2): always a power law, never the Gaussian
kappa_h = kappa * exp(s_h)            positive; s_h = 0 is the kappa the attention was created with
"""

import math

import torch
from torch import Tensor, nn

LEARNABLE = ("alpha", "kappa")
# float32 rounds 1 + sigmoid(17) to 2, so the sigmoid is scaled to stay below 1.
BELOW_ONE = 1.0 - 2.0**-20


class Learned(nn.Module):
    """The unconstrained parameters of alpha and kappa.

    Args:
        names: the learned values: "alpha", "kappa" or both.
        alpha: initial value of alpha.
        num_heads: number of values of each.
    """

    def __init__(self, names: tuple[str, ...], alpha: float, num_heads: int = 1) -> None:
        super().__init__()
        if unknown := sorted(set(names) - set(LEARNABLE)):
            raise ValueError(f"learn takes {' and '.join(LEARNABLE)}, got {unknown[0]!r}")
        if "alpha" in names and not 1.0 < alpha < 2.0:
            raise ValueError(
                f"a learned alpha must start strictly between 1 and 2, got {alpha}; at the edge its gradient is 0 "
                "(start at 1.05 or 1.95), and alpha = 2 is another formula: learn kappa alone there"
            )
        self.names = names
        self.alpha_logit = self.log_scale = None
        if "alpha" in names:
            fraction = (alpha - 1.0) / BELOW_ONE
            self.alpha_logit = nn.Parameter(torch.full((num_heads,), math.log(fraction / (1.0 - fraction))))
        if "kappa" in names:
            self.log_scale = nn.Parameter(torch.zeros(num_heads))

    def alpha(self, fixed: float) -> float | Tensor:
        """Return alpha of each head, or ``fixed`` if alpha is not learned."""
        return fixed if self.alpha_logit is None else 1.0 + BELOW_ONE * self.alpha_logit.sigmoid()

    def kappa(self, initial: float | Tensor) -> float | Tensor:
        """Return kappa of each head, or ``initial`` if kappa is not learned."""
        return initial if self.log_scale is None else initial * self.log_scale.exp()

    def extra_repr(self) -> str:
        count = next(self.parameters()).numel()
        return f"{' and '.join(self.names)} of {count} heads"
