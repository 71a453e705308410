"""Fractional neural attention on R^d: the weight of a key falls as a power of its distance.

    log C_ij = -(d_M + alpha) log(1 + |q_i - k_j| / kappa)    1 <= alpha < 2, Levy diffusion
    log C_ij = -(|q_i - k_j| / kappa)^2                       alpha = 2, Brownian diffusion ("local attention")

Qu, Ly, Gong: Fractional neural attention for efficient multiscale sequence processing, arXiv 2511.10208.
"""

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention
from fna_lightning.attention.distance import euclidean
from fna_lightning.attention.kappa import check_kappa, resolve_kappa
from fna_lightning.attention.radial import Radial


class Fractional(Attention):
    """Multiscale attention: the kernel of a Levy flight of index ``alpha`` between tokens.

    Args:
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values reach further.
        kappa: the distance scale: a positive number, or a rule "text" or "vision"; "auto" is "text".
        intrinsic_dim: the dimension d_M of the space the tokens live in; None takes the head width.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether a token is hidden from itself.
        density_power: exponent of the generalised normalisation, see ``Attention``.
        kernel: how it is computed, see ``Attention``.
    """

    auto_kappa = "text"
    on_sphere = False

    def __init__(
        self,
        alpha: float = 1.2,
        kappa: float | str = "auto",
        intrinsic_dim: float | None = None,
        *,
        dropout: float = 0.0,
        exclude_self: bool = False,
        density_power: float = 0.0,
        kernel: str = "auto",
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

    def dimension(self, q: Tensor) -> float:
        """Return d_M for these queries."""
        return q.size(-1) if self.intrinsic_dim is None else self.intrinsic_dim

    def scale(self, q: Tensor) -> float:
        """Return kappa for these queries as a number."""
        return resolve_kappa(
            self.kappa,
            alpha=self.alpha,
            head_dim=q.size(-1),
            intrinsic_dim=self.dimension(q),
            auto=self.auto_kappa,
        )

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the (B, H, N, M) distances on the manifold of this attention."""
        return euclidean(q, k)

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        hops = self.distance(q, k) / self.scale(q)
        if self.alpha == 2.0:
            return -hops.square()
        return -(self.dimension(q) + self.alpha) * torch.log1p(hops)

    def radial(self, q: Tensor) -> Radial | None:
        # a subclass with a formula of its own is not this one
        kind = type(self)
        if kind.log_kernel is not Fractional.log_kernel or kind.distance is not self.radial_kind().distance:
            return None
        return Radial(self.alpha == 2.0, self.on_sphere, self.scale(q), self.dimension(q) + self.alpha)

    @staticmethod
    def radial_kind() -> "type[Fractional]":
        """Return the class whose distance ``radial`` describes."""
        return Fractional

    def as_dot_product(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor, float] | None:
        """For alpha = 2: -|q - k|^2 = 2 q.k - |k|^2 - |q|^2, the |k|^2 as a coordinate, the |q|^2 constant in a row."""
        if self.alpha != 2.0:
            return None
        scale = 2.0 / self.scale(q) ** 2
        if q.dtype == torch.float16:
            # |k|^2 leaves the range of float16
            q, k = q.float(), k.float()
        if q.dtype == torch.bfloat16:
            norms = k.float().square().sum(dim=-1, keepdim=True)
            # eight bits of mantissa a coordinate: three of them carry the whole float32
            parts = []
            for _ in range(3):
                parts.append(norms.to(q.dtype))
                norms = norms - parts[-1].float()
        else:
            # the attention does not depend on the origin, the rounding of |k|^2 does; so no gradient flows here
            origin = k.detach().mean(dim=-2, keepdim=True) if k.size(-2) else 0.0
            q, k = q - origin, k - origin
            parts = [k.square().sum(dim=-1, keepdim=True)]
        minus_half = q.new_full((), -0.5).expand(*q.shape[:-1], len(parts))
        return torch.cat([q, minus_half], dim=-1), torch.cat([k, *parts], dim=-1), scale

    def extra_repr(self) -> str:
        shown = f"alpha={self.alpha:g}, kappa={self.kappa}"
        if self.intrinsic_dim is not None:
            shown += f", intrinsic_dim={self.intrinsic_dim:g}"
        return ", ".join(filter(None, [shown, super().extra_repr()]))
