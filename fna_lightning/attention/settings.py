"""The attention module behind the functions ``fractional_attention`` and ``attention_weights``."""

from functools import lru_cache
from typing import TypedDict

import torch
from torch import Tensor

from fna_lightning.attention.distance_attention import IntrinsicDim
from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.heads import check_head_values, is_readable
from fna_lightning.attention.inputs import count_heads, heads_per_key_head, repeat_heads
from fna_lightning.attention.kappa import Kappa
from fna_lightning.attention.learned import HeadValues
from fna_lightning.attention.masks import AttentionMask
from fna_lightning.attention.spherical import Spherical

MANIFOLDS: dict[str, type[Fractional]] = {"euclidean": Fractional, "sphere": Spherical}
# Any number but 2, at which the formula is another: it is not used where alpha is a tensor.
POWER_LAW = 1.5


class Settings(TypedDict, total=False):
    """The keyword arguments of ``fractional_attention`` that do not change the type of its result."""

    alpha: float | Tensor
    kappa: Kappa | Tensor
    manifold: str
    intrinsic_dim: IntrinsicDim
    enable_gqa: bool
    exclude_self: bool
    offset: int
    kernel: str


def attention_of(
    q: Tensor,
    alpha: float | Tensor,
    kappa: Kappa | Tensor,
    manifold: str,
    intrinsic_dim: IntrinsicDim,
    exclude_self: bool,
    kernel: str,
) -> Fractional:
    """Return the module with these settings; it has no parameters of its own."""
    if isinstance(alpha, Tensor) or isinstance(kappa, Tensor):
        return _with_tensors(q, alpha, kappa, manifold, intrinsic_dim, exclude_self, kernel)
    if isinstance(kappa, list):
        kappa = tuple(kappa)
    # torch.compile traces the construction and warns about an lru_cache.
    build = _build if torch.compiler.is_compiling() else _build_cached
    return build(manifold, alpha, kappa, intrinsic_dim, exclude_self, kernel)


def with_estimate(attention: Fractional, q: Tensor, k: Tensor, mask: AttentionMask, *, enable_gqa: bool) -> Fractional:
    """Return a copy of the attention with the intrinsic dimension of the keys of this call."""
    # Values of the caller are not copied, because they would lose their gradient.
    values, attention.learned = attention.learned, None
    attention = attention.for_heads(count_heads(q)).eval().to(q.device)
    attention.learned = values
    attention.observe_keys(repeat_heads(k, heads_per_key_head(q, k)) if enable_gqa else k, mask)
    return attention


def _build(
    manifold: str, alpha: float, kappa: Kappa, intrinsic_dim: IntrinsicDim, exclude_self: bool, kernel: str
) -> Fractional:
    if manifold not in MANIFOLDS:
        raise ValueError(f"unknown manifold {manifold!r}; choose one of {', '.join(MANIFOLDS)}")
    return MANIFOLDS[manifold](alpha, kappa, intrinsic_dim, exclude_self=exclude_self, kernel=kernel)


_build_cached = lru_cache(_build)


def _with_tensors(
    q: Tensor,
    alpha: float | Tensor,
    kappa: Kappa | Tensor,
    manifold: str,
    intrinsic_dim: IntrinsicDim,
    exclude_self: bool,
    kernel: str,
) -> Fractional:
    """Return the module whose alpha, kappa or both are tensors of the caller, with their gradients."""
    alphas = kappas = None
    if isinstance(alpha, Tensor):
        alphas = check_head_values("alpha", alpha, q)
        if is_readable(alphas) and not bool(((alphas >= 1.0) & (alphas < 2.0)).all()):
            raise ValueError(
                f"alpha as a tensor must lie in [1, 2), got {alphas.tolist()}; the Gaussian, alpha = 2, is another "
                "formula and needs the number 2.0"
            )
        alpha = POWER_LAW
    if isinstance(kappa, Tensor):
        kappas = check_head_values("kappa", kappa, q)
        if is_readable(kappas) and not bool(((kappas > 0.0) & kappas.isfinite()).all()):
            raise ValueError(f"kappa must be positive and finite, got {kappas.tolist()}")
        kappa = 1.0
    attention = _build(manifold, alpha, kappa, intrinsic_dim, exclude_self, kernel)
    attention.learned = HeadValues(alphas, kappas)
    return attention
