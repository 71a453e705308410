"""Fractional attention with the signature, parameters and masks of ``torch.nn.MultiheadAttention``.

It replaces PyTorch's layer anywhere and loads its weights:

    layer = nn.TransformerEncoderLayer(64, 4, batch_first=True)
    layer.self_attn = FractionalMultiheadAttention(64, 4, batch_first=True, alpha=1.2)
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention.external import ExternalAttention
from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.kappa import Kappa


class FractionalMultiheadAttention(nn.MultiheadAttention):
    """``nn.MultiheadAttention`` whose weights are a power law of the distance between query and key.

    PyTorch's conventions apply: True in ``key_padding_mask`` and in a boolean ``attn_mask`` means "may *not* attend",
    and a float mask is added to the logits. A query that may attend to no key gets 0 (plus the bias of the output
    projection), not NaN.

    Args:
        embed_dim: width of a token.
        num_heads: number of heads; must divide ``embed_dim``.
        dropout: probability of dropping an attention weight in training.
        bias: whether the projections have biases.
        kdim: width of the key tokens; None is ``embed_dim``.
        vdim: width of the value tokens; None is ``embed_dim``.
        batch_first: whether tokens are (batch, token, width) rather than (token, batch, width).
        device: device of the parameters.
        dtype: dtype of the parameters.
        alpha: Levy index in [1, 2].
        kappa: the distance scale, see ``Fractional``.
        options: further settings of ``Fractional``: ``learn``, ``kernel``, ``intrinsic_dim``, ``exclude_self``.
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        device: Any = None,
        dtype: Any = None,
        *,
        alpha: float = 1.2,
        kappa: Kappa = "auto",
        **options: Any,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ValueError(
                f"embed_dim ({embed_dim}) must be a multiple of num_heads ({num_heads}); change one of them"
            )
        super().__init__(
            embed_dim,
            num_heads,
            dropout=dropout,
            bias=bias,
            kdim=kdim,
            vdim=vdim,
            batch_first=batch_first,
            device=device,
            dtype=dtype,
        )
        self.packed_weight = self._qkv_same_embed_dim
        # A private attribute of PyTorch, and the only per-module way to keep the fast path of
        # nn.TransformerEncoderLayer off: in evaluation that path does not call this module but computes dot-product
        # attention from its weights, unless the attribute says that the projections are separate.
        self._qkv_same_embed_dim = False
        self.core = ExternalAttention(Fractional(alpha, kappa, **options), num_heads, embed_dim // num_heads)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output tokens, and the weights if ``need_weights``.

        Args:
            query: (B, N, E), (N, B, E) if not ``batch_first``, or (N, E) for one sequence.
            key: as ``query`` with M tokens of width ``kdim``.
            value: as ``key`` with width ``vdim``.
            key_padding_mask: (B, M), True (or -inf) where a key is padding; a finite float is added to its logits.
            need_weights: also return the weights, which needs an (N, M) matrix; False is faster.
            attn_mask: (N, M) or (B * heads, N, M), True where attention is forbidden, or a float to add.
            average_attn_weights: return the mean weights of the heads, (B, N, M), rather than (B, H, N, M).
            is_causal: a hint that ``attn_mask`` is the causal mask; it needs ``attn_mask``, as in PyTorch.
        """
        if is_causal and attn_mask is None:
            raise ValueError(
                "is_causal is a hint about attn_mask, as in torch.nn.MultiheadAttention, and attn_mask is None; pass "
                "nn.Transformer.generate_square_subsequent_mask(n) too"
            )
        is_self = query is key
        unbatched = query.dim() == 2
        if not (query.dim() == key.dim() == value.dim() and query.dim() in (2, 3)):
            raise ValueError(
                "query, key and value must all have two axes (one sequence) or three (a batch), got "
                f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
            )
        if unbatched:
            query, key, value = (tokens[None] for tokens in (query, key, value))
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = (tokens.transpose(0, 1) for tokens in (query, key, value))
        q, k, v = self._heads(query, key, value)
        _check_masks(key_padding_mask, attn_mask, q, k)
        mask, bias = self._merge_masks(key_padding_mask, attn_mask, q)
        dropout = self.dropout if self.training else 0.0
        out = self.core(q, k, v, mask, bias=bias, dropout=dropout, is_self=is_self)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        weights = self.core.attention.weights(q, k, mask, bias=bias) if need_weights else None
        if weights is not None and average_attn_weights:
            weights = weights.mean(dim=1)
        if unbatched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, ...]:
        if self.packed_weight:
            matrices = self.in_proj_weight.chunk(3)
        else:
            matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        return tuple(
            F.linear(tokens, matrix, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for tokens, matrix, bias in zip((query, key, value), matrices, biases, strict=True)
        )

    def _merge_masks(
        self, padding: Tensor | None, mask: Tensor | None, q: Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """Return PyTorch's two masks as one boolean mask (True = may attend) and one bias."""
        if mask is not None and mask.dim() == 3:
            mask = mask.unflatten(0, (q.size(0), self.num_heads))
        allowed: Tensor | None = None
        bias: Tensor | None = None
        for torch_mask in (mask, None if padding is None else padding[:, None, None, :]):
            if torch_mask is None:
                continue
            if torch_mask.dtype == torch.bool:
                allowed = ~torch_mask if allowed is None else allowed & ~torch_mask
            else:
                bias = torch_mask if bias is None else bias + torch_mask
        return allowed, bias


def _check_masks(padding: Tensor | None, mask: Tensor | None, q: Tensor, k: Tensor) -> None:
    """Raise unless PyTorch's two masks have the right shape, device and dtype, before they are merged into one."""
    batch, heads, n, _ = q.shape
    m = k.size(2)
    if padding is not None and padding.shape != (k.size(0), m):
        raise ValueError(f"key_padding_mask must be (batch, keys) with {k.size(0)} and {m}, got {tuple(padding.shape)}")
    if mask is not None and mask.shape not in ((n, m), (batch * heads, n, m)):
        raise ValueError(
            f"attn_mask must be ({n}, {m}), queries and keys, or (batch * heads, {n}, {m}) with {batch} * {heads}, got "
            f"{tuple(mask.shape)}"
        )
    for name, tensor in (("key_padding_mask", padding), ("attn_mask", mask)):
        if tensor is None:
            continue
        if tensor.device != q.device:
            raise ValueError(f"query is on {q.device} and {name} is on {tensor.device}; move them to the same device")
        if tensor.dtype is not torch.bool and not tensor.is_floating_point():
            raise TypeError(f"{name} must be boolean (True = may not attend) or floating-point, got {tensor.dtype}")
