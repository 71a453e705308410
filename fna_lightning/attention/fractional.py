"""Fractional neural attention on R^d: the weight of a key decays as a power of its distance.

    log C_ij = -(d_M + alpha) log(1 + |q_i - k_j| / kappa)    1 <= alpha < 2, Levy diffusion
    log C_ij = -(|q_i - k_j| / kappa)^2                       alpha = 2, Brownian diffusion ("local attention")

Qu, Ly, Gong: Fractional neural attention for efficient multiscale sequence processing, arXiv 2511.10208.
"""

import copy
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention
from fna_lightning.attention.distance import bfloat16_parts, distance_dtype, euclidean
from fna_lightning.attention.inputs import count_heads
from fna_lightning.attention.kappa import Kappa, check_kappa, kappa_per_head, resolve_kappa
from fna_lightning.attention.kernels.base import Radial
from fna_lightning.attention.learned import Learned

# The methods that define the formula of ``Fractional``, see ``Fractional.radial_form``.
FORMULA_METHODS = frozenset({"distance", "log_profile", "log_kernel"})


class Fractional(Attention):
    """Multiscale attention: the kernel of a Levy flight of index ``alpha`` between tokens.

    Args:
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values have a longer range.
        kappa: the distance scale: a positive number, a list with one number per head, or the rule "text" or "vision";
            "auto" is "text".
        intrinsic_dim: the dimension d_M of the space the tokens live in; None takes the head width d_H.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether tokens may not attend to themselves.
        density_power: exponent of the generalized normalization, see ``Attention``.
        kernel: the implementation, see ``Attention``.
        learn: the values learned per head, initialized with the arguments above: "alpha" (stays in [1, 2)), "kappa"
            (stays positive) or both. ``MultiheadAttention`` creates one parameter per head; on its own the module has
            one value for all heads.
    """

    # The rule that kappa = "auto" stands for.
    auto_kappa = "text"
    # The distance with which the fused kernels reproduce this class; None keeps the class off them. A subclass that
    # overrides one of FORMULA_METHODS must state its form again, otherwise it is None.
    radial_form: ClassVar[Literal["euclidean", "sphere"] | None] = "euclidean"

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__:
            if "radial_form" in vars(base):
                return
            if not FORMULA_METHODS.isdisjoint(vars(base)):
                cls.radial_form = None
                return

    def __init__(
        self,
        alpha: float = 1.2,
        kappa: Kappa = "auto",
        intrinsic_dim: float | None = None,
        *,
        dropout: float = 0.0,
        exclude_self: bool = False,
        density_power: float = 0.0,
        kernel: str = "auto",
        learn: Sequence[str] = (),
    ) -> None:
        super().__init__(dropout=dropout, exclude_self=exclude_self, density_power=density_power, kernel=kernel)
        if not 1.0 <= alpha <= 2.0:
            raise ValueError(f"alpha must lie in [1, 2] (2 is the Gaussian, smaller reaches further), got {alpha}")
        check_kappa(kappa)
        if intrinsic_dim is not None and not intrinsic_dim > 0.0:
            raise ValueError(f"intrinsic_dim must be positive, got {intrinsic_dim}; None takes the head width")
        self.alpha = alpha
        self.kappa = kappa
        self.intrinsic_dim = intrinsic_dim
        if isinstance(learn, str):
            learn = (learn,)
        self.learned = Learned(tuple(learn), alpha) if learn else None

    def for_heads(self, num_heads: int) -> Self:
        if self.learned is None:
            return self
        attention = copy.deepcopy(self)
        attention.learned = Learned(self.learned.names, self.alpha, num_heads)
        return attention

    def dimension(self, q: Tensor) -> float:
        """Return d_M for these queries."""
        return q.size(-1) if self.intrinsic_dim is None else self.intrinsic_dim

    def scale(self, q: Tensor) -> float | Tensor:
        """Return kappa for these queries: a number, or (H,) numbers if it differs between heads."""
        if isinstance(self.kappa, Sequence) and not isinstance(self.kappa, str):
            initial: float | Tensor = kappa_per_head(self.kappa, q)
        else:
            initial = resolve_kappa(
                self.kappa,
                alpha=self.alpha,
                head_dim=q.size(-1),
                intrinsic_dim=self.dimension(q),
                auto=self.auto_kappa,
            )
        return initial if self.learned is None else _in_distance_dtype(self.learned.kappa(initial), q)

    def exponent(self, q: Tensor) -> float | Tensor:
        """Return d_M + alpha for these queries: a number, or (H,) numbers if it differs between heads."""
        alpha = self.alpha if self.learned is None else _in_distance_dtype(self.learned.alpha(self.alpha), q)
        return self.dimension(q) + alpha

    def learned_values(self, q: Tensor) -> dict[str, Tensor]:
        if self.learned is None:
            return {}
        values = {"alpha": self.exponent(q) - self.dimension(q), "kappa": self.scale(q)}
        return {name: torch.as_tensor(values[name]).detach().expand(q.size(-3)) for name in self.learned.names}

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the (B, H, N, M) distances on the manifold of this attention."""
        return euclidean(q, k)

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        return self.log_profile(self.distance(q, k), _per_head(self.scale(q), q), _per_head(self.exponent(q), q))

    def log_profile(self, distance: Tensor, kappa: float | Tensor, exponent: float | Tensor) -> Tensor:
        """Return the logarithm of the kernel as a function of the distance."""
        scaled_distance = distance / kappa
        return -scaled_distance.square() if self.alpha == 2.0 else -exponent * torch.log1p(scaled_distance)

    def radial(self, q: Tensor) -> Radial | None:
        if self.radial_form is None:
            return None
        return Radial(self.alpha == 2.0, self.radial_form == "sphere", self.scale(q), self.exponent(q))

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
                q, k = q - origin, k - origin
            parts = [k.square().sum(dim=-1, keepdim=True)]
        minus_half = q.new_full((), -0.5).expand(*q.shape[:-1], len(parts))
        wide_q = torch.cat([q, minus_half], dim=-1)
        if isinstance(scale, Tensor):
            # PyTorch's function takes one scale for all heads, so the scale of each head multiplies its queries.
            wide_q, scale = wide_q * _per_head(scale, q), 1.0
        return wide_q, torch.cat([k, *parts], dim=-1), scale

    def extra_repr(self) -> str:
        kappa = self.kappa
        if isinstance(kappa, Sequence) and not isinstance(kappa, str):
            kappa = f"{min(kappa):.3g} to {max(kappa):.3g}"
        settings = f"alpha={self.alpha:g}, kappa={kappa}"
        if self.intrinsic_dim is not None:
            settings += f", intrinsic_dim={self.intrinsic_dim:g}"
        return ", ".join(filter(None, [settings, super().extra_repr()]))


def _in_distance_dtype(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return learned (H,) values in the dtype of the distances of these queries."""
    if not isinstance(value, Tensor):
        return value
    if value.device != q.device:
        raise ValueError(
            f"the learned alpha or kappa is on {value.device} and q is on {q.device}; move them to the same device"
        )
    return value.to(distance_dtype(q))


def _per_head(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return (H,) values in a shape that broadcasts with (..., H, n, m); one value for all heads fits any shape."""
    if not isinstance(value, Tensor):
        return value
    if value.numel() == 1:
        return value.reshape(())
    heads = count_heads(q)
    if value.numel() != heads:
        raise ValueError(
            f"this attention has parameters for {value.numel()} heads, the queries have {heads}; create it with "
            f"for_heads({heads})"
        )
    return value[:, None, None]
