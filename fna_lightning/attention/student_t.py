"""Attention with the density of Student's t distribution; with nu = 1 the Cauchy distribution.

    log C_ij = -(nu + d_M) / 2 log(1 + |q_i - k_j|^2 / (nu kappa^2))

As nu grows it becomes the Gaussian exp(-|q - k|^2 / (2 kappa^2)), which is ``Fractional(2.0, kappa=sqrt(2) * kappa)``.
Far away it decays as a power of the distance, like ``Fractional`` with alpha = nu; near 0 it is flat, where
``Fractional`` has a peak.
"""

import math
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor

from fna_lightning.attention.distance_attention import DistanceAttention, IntrinsicDim, RadialForm
from fna_lightning.attention.heads import in_distance_dtype, per_head
from fna_lightning.attention.kappa import Kappa
from fna_lightning.attention.kernels.base import Radial
from fna_lightning.attention.learned import learned_module, refuse_tensor


class StudentT(DistanceAttention):
    """Attention whose kernel is the density of Student's t distribution with ``nu`` degrees of freedom.

    Args:
        nu: degrees of freedom, positive; 1 is the Cauchy distribution, large values approach the Gaussian.
        kappa: the distance scale: a positive number, a list with one number per head, or the rule "text" or "vision",
            which both are sqrt(d_H); "auto" is "text".
        intrinsic_dim: the dimension d_M of the space the tokens live in, see ``Fractional``.
        dropout: probability of dropping an attention weight in training.
        exclude_self: whether tokens may not attend to themselves.
        density_power: exponent of the generalized normalization, see ``Attention``.
        kernel: the implementation, see ``Attention``.
        learn: the values learned per head, initialized with the arguments above: "nu", "kappa" or both; they stay
            positive.
    """

    radial_form: ClassVar[RadialForm] = "euclidean"

    def __init__(
        self,
        nu: float = 1.0,
        kappa: Kappa = "auto",
        intrinsic_dim: IntrinsicDim = None,
        *,
        dropout: float = 0.0,
        exclude_self: bool = False,
        density_power: float = 0.0,
        kernel: str = "auto",
        learn: Sequence[str] = (),
    ) -> None:
        refuse_tensor("nu", nu, "pass learn=['nu'] to learn it")
        if not (nu > 0.0 and math.isfinite(nu)):
            raise ValueError(f"nu must be positive and finite, got {nu}; Fractional(alpha=2.0) is the Gaussian limit")
        super().__init__(
            kappa,
            intrinsic_dim,
            learned_module(learn, ("nu", "kappa")),
            dropout=dropout,
            exclude_self=exclude_self,
            density_power=density_power,
            kernel=kernel,
        )
        self.nu = nu

    @property
    def gaussian_rules(self) -> bool:
        return True

    def degrees(self, q: Tensor) -> float | Tensor:
        """Return nu for these queries: a number, or (H,) numbers if it differs between heads."""
        return self.nu if self.learned is None else in_distance_dtype(self.learned.nu(self.nu), q)

    def exponent(self, q: Tensor) -> float | Tensor:
        """Return (nu + d_M) / 2 for these queries: a number, or (H,) numbers if it differs between heads."""
        return 0.5 * (self.degrees(q) + self.dimension(q))

    def width(self, q: Tensor) -> float | Tensor:
        """Return sqrt(nu) kappa for these queries: a number, or (H,) numbers if it differs between heads."""
        return self.degrees(q) ** 0.5 * self.scale(q)

    def learned_values(self, q: Tensor) -> dict[str, Tensor]:
        return self.values_per_head({"nu": self.degrees(q), "kappa": self.scale(q)}, q)

    def log_profile(self, distance: Tensor, kappa: float | Tensor, exponent: float | Tensor) -> Tensor:
        return -exponent * torch.log1p((distance / kappa).square())

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        if self.radial_form is None:
            return super().log_kernel(q, k)
        width, exponent = per_head(self.width(q), q), per_head(self.exponent(q), q)
        return -exponent * torch.log1p(self.squared_distance(q, k) / width / width)

    def radial(self, q: Tensor) -> Radial | None:
        if self.radial_form is None:
            return None
        return Radial("student", self.radial_form == "sphere", self.width(q), self.exponent(q))

    def extra_repr(self) -> str:
        return f"nu={self.nu:g}, {self.distance_repr()}"
