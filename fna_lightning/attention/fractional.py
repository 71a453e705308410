"""Fractional neural attention on R^d: the weight of a key decays as a power of its distance.

    log C_ij = -(d_M + alpha) log(1 + |q_i - k_j| / kappa)    1 <= alpha < 2, Levy diffusion
    log C_ij = -(|q_i - k_j| / kappa)^2                       alpha = 2, Brownian diffusion ("local attention")

Qu, Ly, Gong: Fractional neural attention for efficient multiscale sequence processing, arXiv 2511.10208.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fna_lightning.attention.distance import bfloat16_parts, distance_dtype
from fna_lightning.attention.distance_attention import DistanceAttention, IntrinsicDim, RadialForm
from fna_lightning.attention.heads import in_distance_dtype, per_head
from fna_lightning.attention.inputs import count_heads, repeat_heads
from fna_lightning.attention.kappa import Kappa
from fna_lightning.attention.kernels.base import Profile, Radial
from fna_lightning.attention.learned import learned_module, refuse_tensor


class Fractional(DistanceAttention):
    """Multiscale attention: the kernel of a Levy flight of index ``alpha`` between tokens.

    Args:
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values have a longer range.
        kappa: the distance scale: a positive number, a list with one number per head, or the rule "text" or "vision";
            "auto" is "text".
        intrinsic_dim: the dimension d_M of the space the tokens live in; None takes the head width d_H. "auto"
            estimates it from the keys, for each head, see ``estimate_intrinsic_dim``: a running average over the calls
            in training mode, saved in the ``state_dict`` and constant in evaluation mode. Before the first estimate it
            is d_H.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether tokens may not attend to themselves.
        density_power: exponent of the generalized normalization, see ``Attention``.
        kernel: the implementation, see ``Attention``.
        learn: the values learned per head, initialized with the arguments above: "alpha" (stays in [1, 2)), "kappa"
            (stays positive) or both. ``MultiheadAttention`` creates one parameter per head; on its own the module has
            one value for all heads.
    """

    radial_form: ClassVar[RadialForm] = "euclidean"

    def __init__(
        self,
        alpha: float = 1.2,
        kappa: Kappa = "auto",
        intrinsic_dim: IntrinsicDim = None,
        *,
        dropout: float = 0.0,
        exclude_self: bool = False,
        density_power: float = 0.0,
        kernel: str = "auto",
        learn: Sequence[str] = (),
    ) -> None:
        refuse_tensor("alpha", alpha, "pass learn=['alpha'] to learn it, or call fractional_attention with the tensor")
        if not 1.0 <= alpha <= 2.0:
            raise ValueError(f"alpha must lie in [1, 2] (2 is the Gaussian, smaller reaches further), got {alpha}")
        super().__init__(
            kappa,
            intrinsic_dim,
            learned_module(learn, ("alpha", "kappa"), alpha=alpha),
            dropout=dropout,
            exclude_self=exclude_self,
            density_power=density_power,
            kernel=kernel,
        )
        self.alpha = alpha

    @property
    def gaussian_rules(self) -> bool:
        return self.alpha == 2.0

    def exponent(self, q: Tensor) -> float | Tensor:
        """Return d_M + alpha for these queries: a number, or (H,) numbers if it differs between heads."""
        alpha = self.alpha if self.learned is None else in_distance_dtype(self.learned.alpha(self.alpha), q)
        return self.dimension(q) + alpha

    def learned_values(self, q: Tensor) -> dict[str, Tensor]:
        return self.values_per_head({"alpha": self.exponent(q) - self.dimension(q), "kappa": self.scale(q)}, q)

    def log_profile(self, distance: Tensor, kappa: float | Tensor, exponent: float | Tensor) -> Tensor:
        scaled_distance = distance / kappa
        return -scaled_distance.square() if self.alpha == 2.0 else -exponent * torch.log1p(scaled_distance)

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        if self.alpha != 2.0 or self.radial_form is None:
            return super().log_kernel(q, k)
        kappa = per_head(self.width(q), q)
        # Divided twice: the square of a small kappa is 0 in float32.
        return -(self.squared_distance(q, k) / kappa / kappa)

    def radial(self, q: Tensor) -> Radial | None:
        if self.radial_form is None:
            return None
        profile: Profile = "gaussian" if self.alpha == 2.0 else "power"
        return Radial(profile, self.radial_form == "sphere", self.scale(q), self.exponent(q))

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """Return the dot-product form of the Gaussian on R^d, or None for any other kernel.

        -|q - k|^2 = 2 q.k - |k|^2 - |q|^2, with |k|^2 as one more key coordinate; |q|^2 is constant in a row.
        """
        if self.alpha != 2.0 or self.radial_form != "euclidean":
            return None
        scale = 2.0 / self.scale(q) ** 2
        if q.dtype == torch.float16 or isinstance(scale, Tensor):
            # float16 cannot represent |k|^2, and a scale per head must not be rounded to it.
            q, k = q.to(distance_dtype(q)), k.to(distance_dtype(q))
        if q.dtype == torch.bfloat16:
            parts = bfloat16_parts(k.float().square().sum(dim=-1, keepdim=True))
        else:
            # The attention does not depend on the origin, but the rounding of |k|^2 does: no gradient flows here.
            if k.size(-2):
                # A key that is not finite must not move the other keys.
                origin = k.detach().mean(dim=-2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
                grouped = count_heads(q) > count_heads(k) > 1
                q = q - (repeat_heads(origin, count_heads(q) // count_heads(k)) if grouped else origin)
                k = k - origin
            parts = [k.square().sum(dim=-1, keepdim=True)]
        minus_half = q.new_full((), -0.5).expand(*q.shape[:-1], len(parts))
        wide_q = torch.cat([q, minus_half], dim=-1)
        if isinstance(scale, Tensor):
            # PyTorch's function takes one scale for all heads, so the scale of each head multiplies its queries.
            wide_q, scale = wide_q * per_head(scale, q), 1.0
        return wide_q, torch.cat([k, *parts], dim=-1), scale

    def extra_repr(self) -> str:
        return f"alpha={self.alpha:g}, {self.distance_repr()}"
