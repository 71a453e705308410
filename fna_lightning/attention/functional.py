"""FNA as functions, with the interface of ``torch.nn.functional.scaled_dot_product_attention``."""

from typing import Any, Literal, Unpack, overload

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import handle_torch_function, has_torch_function

from fna_lightning.attention.autocast import autocast_type
from fna_lightning.attention.distance_attention import IntrinsicDim
from fna_lightning.attention.inputs import heads_per_key_head
from fna_lightning.attention.kappa import Kappa
from fna_lightning.attention.kernels import Call, compute
from fna_lightning.attention.kernels.chunked import log_sum_exp
from fna_lightning.attention.nested import check_same_lengths, length_mask, pad
from fna_lightning.attention.settings import Settings, attention_of, with_estimate
from fna_lightning.attention.tracing import refuse_script


@overload
def fractional_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = ...,
    dropout_p: float = ...,
    is_causal: bool = ...,
    *,
    return_lse: Literal[False] = ...,
    **settings: Unpack[Settings],
) -> Tensor: ...


@overload
def fractional_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = ...,
    dropout_p: float = ...,
    is_causal: bool = ...,
    *,
    return_lse: Literal[True],
    **settings: Unpack[Settings],
) -> tuple[Tensor, Tensor]: ...


def fractional_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    alpha: float | Tensor = 1.2,
    kappa: Kappa | Tensor = "auto",
    manifold: str = "euclidean",
    intrinsic_dim: IntrinsicDim = None,
    enable_gqa: bool = False,
    exclude_self: bool = False,
    offset: int = 0,
    return_lse: bool = False,
    kernel: str = "auto",
) -> Tensor | tuple[Tensor, Tensor]:
    """Return the fractional neural attention: weighted means of the values, one for each query.

    The arguments are those of ``scaled_dot_product_attention``, in the same order. There is no ``scale``: distances are
    divided by ``kappa``, which has the unit of the tokens. Under autocast the output has the dtype of autocast, as in
    PyTorch's function; it is computed in the dtype of the inputs and rounded once.

    Args:
        q: (..., n, d_H) queries. Axis -3, if there is one, is the heads axis. q, k and v may be nested tensors (B, H,
            n, d_H) or (B, n, d_H) with a length for each sequence: they are padded for the call, and the output is
            nested if q is.
        k: (..., m, d_H) keys.
        v: (..., m, d_v) values.
        attn_mask: broadcastable to (..., n, m), as in PyTorch's function: boolean, True where attention is allowed, or
            floating-point, added to the logits log C before the softmax; -inf masks out a key. It may require
            gradients.
        dropout_p: probability of dropping a weight; applied whenever it is not 0, as in PyTorch's function.
        is_causal: query ``i`` may only attend to the keys ``j <= i + offset``; combines with ``attn_mask``. With offset
            0 the mask is aligned at the top left, as in PyTorch's function: with n < m the first query attends to the
            first key only.
        alpha: Levy index in [1, 2]; 2 is the Gaussian, smaller values have a longer range. A tensor has one value for
            all heads or one for each head, (H,) or (H, 1, 1), in [1, 2), and may require gradients.
        kappa: the distance scale: a positive number, a list with one number per head, a tensor as for ``alpha``, or a
            rule "text", "vision", "sphere"; "auto" is "text" on R^d and "sphere" on the sphere.
        manifold: "euclidean" or "sphere" (q and k are normalized, distances are angles).
        intrinsic_dim: the dimension d_M in the exponent; None takes d_H, except on the sphere with one head, where it
            takes d_H - 1. One head means that axis -3 of q has size 1, or that q is (n, d_H). ``Spherical`` follows
            the same rule. "auto" estimates it from the keys of this call, for each head.
        enable_gqa: grouped heads, as in PyTorch's function: k and v may have G heads where q has H heads and G divides
            H. Query head h uses key head h // (H // G).
        exclude_self: whether query ``i`` may not attend to key ``i + offset``; needs m = n + offset.
        offset: position of the first query among the keys, for decoding with cached keys: m - n there.
        return_lse: also return the (..., n) logarithms of the sums of exp(logit) over the allowed keys, in float32 or
            float64, with gradients; -inf where a query may attend to no key. With them, the outputs of several blocks
            of keys can be merged. They take a second pass over the keys.
        kernel: a name of ``available_kernels()``, or "auto".

    Example:
        >>> import torch
        >>> q, k, v = torch.randn(3, 2, 8, 100, 16).unbind()
        >>> fractional_attention(q, k, v, alpha=1.2, is_causal=True).shape
        torch.Size([2, 8, 100, 16])
    """
    # Symbolic traces and subclasses of Tensor may handle the call themselves.
    if has_torch_function((q, k, v)):
        return handle_torch_function(
            fractional_attention,  # type: ignore[arg-type]
            (q, k, v),
            q,
            k,
            v,
            attn_mask,
            dropout_p,
            is_causal,
            alpha=alpha,
            kappa=kappa,
            manifold=manifold,
            intrinsic_dim=intrinsic_dim,
            enable_gqa=enable_gqa,
            exclude_self=exclude_self,
            offset=offset,
            return_lse=return_lse,
            kernel=kernel,
        )
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must lie in [0, 1), got {dropout_p}")
    queries = None
    if q.is_nested or k.is_nested or v.is_nested:
        queries, keys, values = (pad(name, x) if x.is_nested else None for name, x in (("q", q), ("k", k), ("v", v)))
        check_same_lengths("k", keys, "v", values)
        q = q if queries is None else queries.dense
        k, v = k if keys is None else keys.dense, v if values is None else values.dense
        attn_mask = attn_mask if keys is None else length_mask(keys, attn_mask)
    attention = attention_of(q, alpha, kappa, manifold, intrinsic_dim, exclude_self, kernel)
    mask = attention.mask_for(q, k, attn_mask, is_causal=is_causal, offset=offset, enable_gqa=enable_gqa)
    if intrinsic_dim == "auto":
        attention = with_estimate(attention, q, k, mask, enable_gqa=enable_gqa)
    call = Call(attention, q, k, v, mask, dropout_p, heads_per_key_head(q, k) if enable_gqa else 1)
    out = compute(call)
    # The first condition is the fast one.
    if not (out.is_cpu and not torch.is_autocast_enabled("cpu")) and out.dtype is not torch.float64:
        out = out.to(autocast_type(out.device) or out.dtype)
    lse = log_sum_exp(call) if return_lse else None
    if queries is not None:
        out, lse = queries.nest(out), None if lse is None else queries.nest(lse, -1)
    return out if lse is None else (out, lse)


def attention_weights(
    q: Tensor,
    k: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    alpha: float | Tensor = 1.2,
    kappa: Kappa | Tensor = "auto",
    manifold: str = "euclidean",
    intrinsic_dim: IntrinsicDim = None,
    enable_gqa: bool = False,
    exclude_self: bool = False,
    offset: int = 0,
) -> Tensor:
    """Return the (..., n, m) row-stochastic matrix of ``fractional_attention``, with the same arguments.

    There is no ``kernel``, because the matrix is always that of the reference formula. The matrix of nested tensors is
    dense, with 0 for padding.
    """
    if has_torch_function((q, k)):
        return handle_torch_function(
            attention_weights,
            (q, k),
            q,
            k,
            attn_mask,
            dropout_p,
            is_causal,
            alpha=alpha,
            kappa=kappa,
            manifold=manifold,
            intrinsic_dim=intrinsic_dim,
            enable_gqa=enable_gqa,
            exclude_self=exclude_self,
            offset=offset,
        )
    if not 0.0 <= dropout_p < 1.0:
        raise ValueError(f"dropout_p must lie in [0, 1), got {dropout_p}")
    queries = pad("q", q) if q.is_nested else None
    if k.is_nested:
        keys = pad("k", k)
        k, attn_mask = keys.dense, length_mask(keys, attn_mask)
    if queries is not None:
        q = queries.dense
    attention = attention_of(q, alpha, kappa, manifold, intrinsic_dim, exclude_self, "auto")
    masking: dict[str, Any] = {"is_causal": is_causal, "offset": offset, "enable_gqa": enable_gqa}
    if intrinsic_dim == "auto":
        mask = attention.mask_for(q, k, attn_mask, **masking)
        attention = with_estimate(attention, q, k, mask, enable_gqa=enable_gqa)
    weights = F.dropout(attention.weights(q, k, attn_mask, **masking), dropout_p)
    if queries is None:
        return weights
    return weights.where(queries.tokens().view(len(weights), *[1] * (weights.dim() - 3), -1, 1), 0.0)


# ``torch.jit.script`` looks for this attribute.
fractional_attention.__prepare_scriptable__ = refuse_script("fractional_attention")  # type: ignore[attr-defined]
attention_weights.__prepare_scriptable__ = refuse_script("attention_weights")  # type: ignore[attr-defined]
