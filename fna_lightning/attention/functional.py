"""FNA as functions, with the interface of ``torch.nn.functional.scaled_dot_product_attention``."""

from functools import lru_cache

import torch
from torch import Tensor

from fna_lightning.attention.distance_attention import IntrinsicDim
from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.inputs import count_heads, heads_per_key_head, repeat_heads
from fna_lightning.attention.kernels import Call, compute
from fna_lightning.attention.masks import AttentionMask
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
    intrinsic_dim: IntrinsicDim = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    dropout_p: float = 0.0,
    enable_gqa: bool = False,
    exclude_self: bool = False,
    kernel: str = "auto",
) -> Tensor:
    """Return the fractional neural attention: weighted means of the values, one for each query.

    Args:
        q: (..., n, d_H) queries. Axis -3, if there is one, is the heads axis.
        k: (..., m, d_H) keys.
        v: (..., m, d_v) values.
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values have a longer range.
        kappa: the distance scale: a positive number or a rule "text", "vision", "sphere"; "auto" is "text" on R^d and
            "sphere" on the sphere.
        manifold: "euclidean" or "sphere" (q and k are normalized, distances are angles).
        intrinsic_dim: the dimension d_M in the exponent; None takes d_H, except on the sphere with one head, where it
            takes d_H - 1. One head means that axis -3 of q has size 1, or that q is (n, d_H). ``Spherical`` follows
            the same rule. "auto" estimates it from the keys of this call, for each head.
        attn_mask: broadcastable to (..., n, m), as in PyTorch's function: boolean, True where attention is allowed, or
            floating-point, added to the logits log C before the softmax; -inf masks out a key. It may require
            gradients.
        is_causal: query ``i`` may only attend to the keys ``j <= i``; combines with ``attn_mask``.
        dropout_p: probability of dropping a weight; applied whenever it is not 0, as in PyTorch's function.
        enable_gqa: grouped heads, as in PyTorch's function: k and v may have G heads where q has H heads and G divides
            H. Query head h uses key head h // (H // G).
        exclude_self: whether query ``i`` may not attend to key ``i``; needs n = m.
        kernel: a name of ``available_kernels()``, or "auto".

    Example:
        >>> import torch
        >>> q, k, v = torch.randn(3, 2, 8, 100, 16).unbind()
        >>> fractional_attention(q, k, v, alpha=1.2, is_causal=True).shape
        torch.Size([2, 8, 100, 16])
    """
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must lie in [0, 1), got {dropout_p}")
    attention = _attention(manifold, alpha, kappa, intrinsic_dim, exclude_self, kernel)
    mask = attention.mask_for(q, k, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)
    group_size = heads_per_key_head(q, k) if enable_gqa else 1
    if intrinsic_dim == "auto":
        attention = _with_estimate(attention, q, repeat_heads(k, group_size), mask)
    return compute(Call(attention, q, k, v, mask, dropout_p, group_size))


def attention_weights(
    q: Tensor,
    k: Tensor,
    *,
    alpha: float = 1.2,
    kappa: float | str = "auto",
    manifold: str = "euclidean",
    intrinsic_dim: IntrinsicDim = None,
    attn_mask: Tensor | None = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
    exclude_self: bool = False,
) -> Tensor:
    """Return the (..., n, m) row-stochastic matrix of ``fractional_attention``, with the same arguments."""
    attention = _attention(manifold, alpha, kappa, intrinsic_dim, exclude_self, "auto")
    if intrinsic_dim == "auto":
        mask = attention.mask_for(q, k, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)
        keys = repeat_heads(k, heads_per_key_head(q, k)) if enable_gqa else k
        attention = _with_estimate(attention, q, keys, mask)
    return attention.weights(q, k, attn_mask, is_causal=is_causal, enable_gqa=enable_gqa)


def _with_estimate(attention: Fractional, q: Tensor, k: Tensor, mask: AttentionMask) -> Fractional:
    """Return a copy of the attention with the intrinsic dimension of the keys of this call."""
    attention = attention.for_heads(count_heads(q)).eval().to(q.device)
    attention.observe_keys(k, mask)
    return attention


def _attention(
    manifold: str, alpha: float, kappa: float | str, intrinsic_dim: IntrinsicDim, exclude_self: bool, kernel: str
) -> Fractional:
    # torch.compile traces the construction and warns about an lru_cache.
    build = _build if torch.compiler.is_compiling() else _build_cached
    return build(manifold, alpha, kappa, intrinsic_dim, exclude_self, kernel)


def _build(
    manifold: str, alpha: float, kappa: float | str, intrinsic_dim: IntrinsicDim, exclude_self: bool, kernel: str
) -> Fractional:
    """Return the module with these settings; it has no parameters."""
    if manifold not in MANIFOLDS:
        raise ValueError(f"unknown manifold {manifold!r}; choose one of {', '.join(MANIFOLDS)}")
    return MANIFOLDS[manifold](alpha, kappa, intrinsic_dim, exclude_self=exclude_self, kernel=kernel)


_build_cached = lru_cache(_build)
