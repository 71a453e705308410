"""Fractional neural attention on R^d: the weight of a key falls as a power of its distance.

    log C_ij = -(d_M + alpha) log(1 + |q_i - k_j| / kappa)    1 <= alpha < 2, Levy diffusion
    log C_ij = -(|q_i - k_j| / kappa)^2                       alpha = 2, Brownian diffusion ("local attention")

Qu, Ly, Gong: Fractional neural attention for efficient multiscale sequence processing, arXiv 2511.10208.
"""

import copy
from collections.abc import Sequence
from typing import Self

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention
from fna_lightning.attention.distance import euclidean
from fna_lightning.attention.kappa import Kappa, check_kappa, computed_in, kappa_of_heads, resolve_kappa
from fna_lightning.attention.learned import Learned
from fna_lightning.attention.radial import Radial


class Fractional(Attention):
    """Multiscale attention: the kernel of a Levy flight of index ``alpha`` between tokens.

    Args:
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values reach further.
        kappa: the distance scale: a positive number, one for each head, or a rule "text" or "vision"; "auto" is "text".
        intrinsic_dim: the dimension d_M of the space the tokens live in; None takes the head width.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether a token is hidden from itself.
        density_power: exponent of the generalised normalisation, see ``Attention``.
        kernel: how it is computed, see ``Attention``.
        learn: what is learned for each head, starting from the above: "alpha" (stays in [1, 2)), "kappa" (stays
            positive) or both. ``MultiheadAttention`` makes the parameters of its heads; on its own the module has one
            value for all heads.
    """

    auto_kappa = "text"
    on_sphere = False

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
        mine = copy.deepcopy(self)
        mine.learned = Learned(self.learned.names, self.alpha, num_heads)
        return mine

    def dimension(self, q: Tensor) -> float:
        """Return d_M for these queries."""
        return q.size(-1) if self.intrinsic_dim is None else self.intrinsic_dim

    def scale(self, q: Tensor) -> float | Tensor:
        """Return kappa for these queries: a number, or (H,) numbers if heads differ."""
        if isinstance(self.kappa, Sequence) and not isinstance(self.kappa, str):
            rule: float | Tensor = kappa_of_heads(self.kappa, q)
        else:
            rule = resolve_kappa(
                self.kappa,
                alpha=self.alpha,
                head_dim=q.size(-1),
                intrinsic_dim=self.dimension(q),
                auto=self.auto_kappa,
            )
        return rule if self.learned is None else _for_queries(self.learned.kappa(rule), q)

    def exponent(self, q: Tensor) -> float | Tensor:
        """Return d_M + alpha for these queries: a number, or (H,) numbers if heads differ."""
        alpha = self.alpha if self.learned is None else _for_queries(self.learned.alpha(self.alpha), q)
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
        return self.log_profile(self.distance(q, k), _on_matrix(self.scale(q), q), _on_matrix(self.exponent(q), q))

    def log_profile(self, distance: Tensor, kappa: float | Tensor, exponent: float | Tensor) -> Tensor:
        """Return the logarithm of the kernel as a function of the distance."""
        hops = distance / kappa
        return -hops.square() if self.alpha == 2.0 else -exponent * torch.log1p(hops)

    def radial(self, q: Tensor) -> Radial | None:
        # a subclass with a formula of its own is not this one
        kind = type(self)
        own = kind.log_kernel is not Fractional.log_kernel or kind.log_profile is not Fractional.log_profile
        if own or kind.distance is not self.radial_kind().distance:
            return None
        return Radial(self.alpha == 2.0, self.on_sphere, self.scale(q), self.exponent(q))

    @staticmethod
    def radial_kind() -> "type[Fractional]":
        """Return the class whose distance ``radial`` describes."""
        return Fractional

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """For alpha = 2: -|q - k|^2 = 2 q.k - |k|^2 - |q|^2, the |k|^2 as a coordinate, the |q|^2 constant in a row."""
        if self.alpha != 2.0:
            return None
        scale = 2.0 / self.scale(q) ** 2
        if q.dtype == torch.float16 or isinstance(scale, Tensor):
            # |k|^2 leaves the range of float16, and a scale for each head must not be rounded
            q, k = q.to(computed_in(q)), k.to(computed_in(q))
        if q.dtype == torch.bfloat16:
            norms = k.float().square().sum(dim=-1, keepdim=True)
            # eight bits of mantissa a coordinate: three of them carry the whole float32
            parts = []
            for _ in range(3):
                parts.append(norms.to(q.dtype))
                norms = norms - parts[-1].float()
        else:
            # the attention does not depend on the origin, the rounding of |k|^2 does; so no gradient flows here
            if k.size(-2):
                # a key that is not finite must not move the others
                origin = k.detach().mean(dim=-2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
                q, k = q - origin, k - origin
            parts = [k.square().sum(dim=-1, keepdim=True)]
        minus_half = q.new_full((), -0.5).expand(*q.shape[:-1], len(parts))
        wide = torch.cat([q, minus_half], dim=-1)
        if isinstance(scale, Tensor):
            # PyTorch's function takes one scale: the heads' own go into the queries
            wide, scale = wide * _on_matrix(scale, q), 1.0
        return wide, torch.cat([k, *parts], dim=-1), scale

    def extra_repr(self) -> str:
        kappa = self.kappa
        if isinstance(kappa, Sequence) and not isinstance(kappa, str):
            kappa = f"{min(kappa):.3g} to {max(kappa):.3g}"
        shown = f"alpha={self.alpha:g}, kappa={kappa}"
        if self.intrinsic_dim is not None:
            shown += f", intrinsic_dim={self.intrinsic_dim:g}"
        return ", ".join(filter(None, [shown, super().extra_repr()]))


def _for_queries(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return learned (H,) numbers in the type distances of these queries have."""
    if not isinstance(value, Tensor):
        return value
    if value.device != q.device:
        raise ValueError(
            f"the learned alpha or kappa is on {value.device} and q is on {q.device}; move them to the same device"
        )
    return value.to(computed_in(q))


def _on_matrix(value: float | Tensor, q: Tensor) -> float | Tensor:
    """Return (H,) numbers so that they multiply (..., H, n, m); one number for all heads fits any shape."""
    if not isinstance(value, Tensor):
        return value
    if value.numel() == 1:
        return value.reshape(())
    heads = q.size(-3) if q.dim() >= 3 else 1
    if value.numel() != heads:
        raise ValueError(f"this attention has parameters of {value.numel()} heads and was given {heads} heads")
    return value[:, None, None]
