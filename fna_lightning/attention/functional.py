"""FNA as functions, called like ``torch.nn.functional.scaled_dot_product_attention``."""

from functools import lru_cache

import torch
from torch import Tensor

from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.kernels import Call, compute
from fna_lightning.attention.spherical import Spherical

MANIFOLDS: dict[str, type[Fractional]] = {"euclidean": Fractional, "sphere": Spherical}


def fractional_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    alpha: float = 1.2,
    kappa: float | str = "auto",
    manifold: str = "euclidean",
    intrinsic_dim: float | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    exclude_self: bool = False,
    kernel: str = "auto",
) -> Tensor:
    """Return the fractional neural attention of queries to keys, as weighted means of the values.

    Args:
        q: (..., n, d_H) queries.
        k: (..., m, d_H) keys.
        v: (..., m, d_v) values.
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values reach further.
        kappa: the distance scale: a positive number or a rule "text", "vision", "sphere"; "auto" is "text" on R^d and
            "sphere" on the sphere.
        manifold: "euclidean" or "sphere" (q and k are normalised, distances are angles).
        intrinsic_dim: the dimension d_M in the exponent; None takes d_H.
        attn_mask: boolean, broadcastable to (..., n, m), True where attention is allowed.
        is_causal: query ``i`` sees the keys ``j <= i`` only; combines with ``attn_mask``.
        dropout_p: probability of dropping a weight; applied whenever it is not 0, as in PyTorch's function.
        exclude_self: whether query ``i`` is kept from key ``i``; needs n = m.
        kernel: a name of ``available_kernels()``, or "auto".

    Example:
        >>> import torch
        >>> q, k, v = torch.randn(3, 2, 8, 100, 16).unbind()
        >>> fractional_attention(q, k, v, alpha=1.2, is_causal=True).shape
        torch.Size([2, 8, 100, 16])
    """
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must lie in [0, 1), got {dropout_p}")
    attention = _attention(manifold, alpha, kappa, _dimension(q, intrinsic_dim), exclude_self, kernel)
    return compute(Call(attention, q, k, v, attention.visibility(q, k, attn_mask, is_causal=is_causal), dropout_p))


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    alpha: float = 1.2,
    kappa: float | str = "auto",
    manifold: str = "euclidean",
    intrinsic_dim: float | None = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    exclude_self: bool = False,
) -> Tensor:
    """Return the (..., n, m) row-stochastic matrix of ``fractional_attention``; arguments as there."""
    attention = _attention(manifold, alpha, kappa, _dimension(q, intrinsic_dim), exclude_self, "auto")
    return attention.weights(q, k, attn_mask, is_causal=is_causal)


def _dimension(q: Tensor, intrinsic_dim: float | None) -> float:
    return q.size(-1) if intrinsic_dim is None else intrinsic_dim


def _attention(
    manifold: str, alpha: float, kappa: float | str, intrinsic_dim: float, exclude_self: bool, kernel: str
) -> Fractional:
    # torch.compile traces the construction away, and warns of a cache
    make = _make if torch.compiler.is_compiling() else _make_once
    return make(manifold, alpha, kappa, intrinsic_dim, exclude_self, kernel)


def _make(
    manifold: str, alpha: float, kappa: float | str, intrinsic_dim: float, exclude_self: bool, kernel: str
) -> Fractional:
    """Return the parameter-free module of these settings."""
    if manifold not in MANIFOLDS:
        raise ValueError(f"unknown manifold {manifold!r}; choose one of {', '.join(MANIFOLDS)}")
    return MANIFOLDS[manifold](alpha, kappa, intrinsic_dim, exclude_self=exclude_self, kernel=kernel)


_make_once = lru_cache(_make)
