"""Learned values of an attention, one per head, inside their ranges after any optimizer step.

alpha_h = 1 + sigmoid(a_h)            in [1, 2): always a power law, never the Gaussian
kappa_h = kappa * exp(s_h)            positive; s_h = 0 is the kappa the attention was created with
scale_h = scale * exp(s_h)            the same for the scale of dot products
nu_h    = nu * exp(t_h)               the same for the degrees of freedom of Student's t
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn

# float32 rounds 1 + sigmoid(17) to 2, so the sigmoid is scaled to stay below 1.
BELOW_ONE = 1.0 - 2.0**-20


class Learned(nn.Module):
    """The unconstrained parameters of the learned values.

    Args:
        names: the learned values.
        learnable: the values that the attention can learn.
        num_heads: number of values of each.
        alpha: initial value of alpha, if the attention has one.
    """

    def __init__(
        self, names: Sequence[str], learnable: tuple[str, ...], num_heads: int = 1, *, alpha: float | None = None
    ) -> None:
        super().__init__()
        if unknown := sorted(set(names) - set(learnable)):
            raise ValueError(f"learn takes {' and '.join(learnable)}, got {unknown[0]!r}")
        self.names = tuple(names)
        self.learnable = learnable
        self.initial_alpha = alpha
        self.alpha_logit = self.log_scale = self.log_nu = None
        if "alpha" in names:
            self.alpha_logit = nn.Parameter(torch.full((num_heads,), _alpha_logit(alpha)))
        if "kappa" in names or "scale" in names:
            self.log_scale = nn.Parameter(torch.zeros(num_heads))
        if "nu" in names:
            self.log_nu = nn.Parameter(torch.zeros(num_heads))

    def for_heads(self, num_heads: int) -> "Learned":
        """Return new parameters of the same names for ``num_heads`` heads, at their initial values."""
        return Learned(self.names, self.learnable, num_heads, alpha=self.initial_alpha)

    def alpha(self, fixed: float) -> float | Tensor:
        """Return alpha of each head, or ``fixed`` if alpha is not learned."""
        return fixed if self.alpha_logit is None else 1.0 + BELOW_ONE * self.alpha_logit.sigmoid()

    def scale(self, initial: float | Tensor) -> float | Tensor:
        """Return kappa, or the scale of dot products, of each head, or ``initial`` if it is not learned."""
        return initial if self.log_scale is None else initial * self.log_scale.exp()

    def nu(self, initial: float) -> float | Tensor:
        """Return nu of each head, or ``initial`` if nu is not learned."""
        return initial if self.log_nu is None else initial * self.log_nu.exp()

    def extra_repr(self) -> str:
        count = next(self.parameters()).numel()
        return f"{' and '.join(self.names)} of {count} heads"


class HeadValues(Learned):
    """alpha and kappa of each head that the caller passes as tensors, in the place of learned ones.

    Args:
        alpha: (H,) or (1,) values in [1, 2), or None if alpha is a number.
        kappa: (H,) or (1,) positive values, or None if kappa is a number or a rule.
    """

    alpha_values: Tensor | None
    kappa_values: Tensor | None

    def __init__(self, alpha: Tensor | None, kappa: Tensor | None) -> None:
        super().__init__((), ())
        # As buffers, because the kernel `chunked` differentiates with respect to parameters and buffers.
        self.register_buffer("alpha_values", alpha, persistent=False)
        self.register_buffer("kappa_values", kappa, persistent=False)

    def alpha(self, fixed: float) -> float | Tensor:
        return fixed if self.alpha_values is None else self.alpha_values

    def scale(self, initial: float | Tensor) -> float | Tensor:
        return initial if self.kappa_values is None else self.kappa_values

    def extra_repr(self) -> str:
        return ""


def learned_module(
    learn: Sequence[str] | str, learnable: tuple[str, ...], *, alpha: float | None = None
) -> Learned | None:
    """Return the parameters named by the argument ``learn`` of an attention, or None if it is empty."""
    names = (learn,) if isinstance(learn, str) else tuple(learn)
    return Learned(names, learnable, alpha=alpha) if names else None


def refuse_tensor(name: str, value: object, way_out: str) -> None:
    """Raise if a setting of a module is a tensor, whose gradient the module would not keep with every kernel."""
    if isinstance(value, Tensor):
        raise TypeError(f"{name} of a module must be a number, got a tensor; {way_out}")


def _alpha_logit(alpha: float | None) -> float:
    if alpha is None or not 1.0 < alpha < 2.0:
        raise ValueError(
            f"a learned alpha must start strictly between 1 and 2, got {alpha}; at the edge its gradient is 0 "
            "(start at 1.05 or 1.95), and alpha = 2 is another formula: learn kappa alone there"
        )
    fraction = (alpha - 1.0) / BELOW_ONE
    return math.log(fraction / (1.0 - fraction))
