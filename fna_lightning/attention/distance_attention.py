"""Base class of the attentions whose kernel is a function of the distance between query and key."""

import copy
from abc import abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor

from fna_lightning.attention.base import Attention
from fna_lightning.attention.distance import euclidean, squared_euclidean, squared_geodesic
from fna_lightning.attention.heads import in_distance_dtype, per_head
from fna_lightning.attention.intrinsic_dim import RunningIntrinsicDim
from fna_lightning.attention.kappa import Kappa, check_kappa, kappa_per_head, resolve_kappa
from fna_lightning.attention.learned import Learned, refuse_tensor
from fna_lightning.attention.masks import AttentionMask

# The methods that define the formula of an attention, see ``DistanceAttention.radial_form``.
FORMULA_METHODS = frozenset({"distance", "log_profile", "log_kernel"})
RadialForm = Literal["euclidean", "sphere"] | None
IntrinsicDim = float | Literal["auto"] | None


class DistanceAttention(Attention):
    """Attention whose kernel is a function of distance / kappa and of the intrinsic dimension d_M of the tokens.

    Args:
        kappa: the distance scale: a positive number, a list with one number per head, or a rule, see ``Fractional``.
        intrinsic_dim: the dimension d_M; None takes the head width, "auto" estimates it from the keys.
        learned: the learned values, or None.
        options: the settings of ``Attention``.
    """

    # The rule that kappa = "auto" stands for.
    auto_kappa = "text"
    # The distance with which the fused kernels reproduce this class; None keeps the class off them. A subclass that
    # overrides one of FORMULA_METHODS must state its form again, otherwise it is None.
    radial_form: ClassVar[RadialForm] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        for base in cls.__mro__:
            if "radial_form" in vars(base):
                return
            if not FORMULA_METHODS.isdisjoint(vars(base)):
                cls.radial_form = None
                return

    def __init__(self, kappa: Kappa, intrinsic_dim: IntrinsicDim, learned: Learned | None, **options: Any) -> None:
        super().__init__(**options)
        check_kappa(kappa)
        refuse_tensor("intrinsic_dim", intrinsic_dim, "convert it with .item()")
        if isinstance(intrinsic_dim, str):
            if intrinsic_dim != "auto":
                raise ValueError(
                    f"intrinsic_dim must be a positive number, None (the head width) or 'auto' (estimated from the "
                    f"keys), got {intrinsic_dim!r}"
                )
        elif intrinsic_dim is not None and not intrinsic_dim > 0.0:
            raise ValueError(f"intrinsic_dim must be positive, got {intrinsic_dim}; None takes the head width")
        self.kappa = kappa
        self.intrinsic_dim = intrinsic_dim
        self.learned = learned
        self.running_dim = RunningIntrinsicDim() if intrinsic_dim == "auto" else None

    def for_heads(self, num_heads: int) -> Self:
        if self.learned is None and self.running_dim is None:
            return self
        attention = copy.deepcopy(self)
        if self.learned is not None:
            attention.learned = self.learned.for_heads(num_heads)
        if self.running_dim is not None:
            attention.running_dim = RunningIntrinsicDim(num_heads)
        return attention

    @property
    def observes_keys(self) -> bool:
        return self.running_dim is not None

    def observe_keys(self, k: Tensor, mask: AttentionMask) -> None:
        if self.running_dim is not None:
            self.running_dim.update(k, mask)

    @property
    @abstractmethod
    def gaussian_rules(self) -> bool:
        """Whether a rule for kappa takes its form for the Gaussian rather than the one for the power law."""

    def dimension(self, q: Tensor) -> float | Tensor:
        """Return d_M for these queries: a number, or (H,) estimates."""
        if self.running_dim is not None:
            return in_distance_dtype(self.running_dim(q.size(-1)), q)
        assert not isinstance(self.intrinsic_dim, str), "'auto' has a running estimate"
        return self.default_dimension(q) if self.intrinsic_dim is None else self.intrinsic_dim

    def default_dimension(self, q: Tensor) -> float:
        """Return d_M for these queries where ``intrinsic_dim`` is None."""
        return q.size(-1)

    def scale(self, q: Tensor) -> float | Tensor:
        """Return kappa for these queries: a number, or (H,) numbers if it differs between heads."""
        kappa = self.kappa
        if isinstance(kappa, Sequence) and not isinstance(kappa, str):
            initial: float | Tensor = kappa_per_head(kappa, q)
        elif not isinstance(kappa, str):
            initial = float(kappa)
        else:
            initial = resolve_kappa(
                self.auto_kappa if kappa == "auto" else kappa,
                gaussian=self.gaussian_rules,
                head_dim=q.size(-1),
                intrinsic_dim=self.dimension(q),
            )
        return initial if self.learned is None else in_distance_dtype(self.learned.scale(initial), q)

    def width(self, q: Tensor) -> float | Tensor:
        """Return the unit of distance of ``log_profile`` for these queries: kappa, or a multiple of it."""
        return self.scale(q)

    @abstractmethod
    def exponent(self, q: Tensor) -> float | Tensor:
        """Return the exponent for these queries: a number, or (H,) numbers if it differs between heads."""

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the (B, H, N, M) distances on the manifold of this attention."""
        return euclidean(q, k)

    def squared_distance(self, q: Tensor, k: Tensor) -> Tensor:
        """Return the (B, H, N, M) squared distances.

        Unlike the distance they have a second derivative where q = k, so smooth functions of r^2 are computed from
        them.
        """
        if self.radial_form == "euclidean":
            return squared_euclidean(q, k)
        if self.radial_form == "sphere":
            return squared_geodesic(q, k)
        return self.distance(q, k).square()

    def log_kernel(self, q: Tensor, k: Tensor) -> Tensor:
        return self.log_profile(self.distance(q, k), per_head(self.width(q), q), per_head(self.exponent(q), q))

    @abstractmethod
    def log_profile(self, distance: Tensor, kappa: float | Tensor, exponent: float | Tensor) -> Tensor:
        """Return the logarithm of the kernel as a function of the distance; ``kappa`` is the value of ``width``."""

    def values_per_head(self, values: dict[str, float | Tensor], q: Tensor) -> dict[str, Tensor]:
        """Return those of the values that are learned, and the estimated dimension, as (H,) tensors."""
        names = () if self.learned is None else self.learned.names
        shown = {name: values[name] for name in names}
        if self.running_dim is not None:
            shown["intrinsic_dim"] = self.dimension(q)
        return {name: torch.as_tensor(value).detach().expand(q.size(-3)) for name, value in shown.items()}

    def distance_repr(self) -> str:
        """Return kappa and the intrinsic dimension, for ``extra_repr``."""
        kappa = self.kappa
        if isinstance(kappa, Sequence) and not isinstance(kappa, str):
            kappa = f"{min(kappa):.3g} to {max(kappa):.3g}"
        settings = f"kappa={kappa}"
        if self.intrinsic_dim is not None:
            value = self.intrinsic_dim if isinstance(self.intrinsic_dim, str) else f"{self.intrinsic_dim:g}"
            settings += f", intrinsic_dim={value}"
        return ", ".join(filter(None, [settings, super().extra_repr()]))
