"""Fractional attention with the signature, parameters and masks of ``torch.nn.MultiheadAttention``.

It replaces PyTorch's layer anywhere, also in a model that is already built, and loads its weights:

    for layer in encoder.layers:
        attention = FractionalMultiheadAttention(64, 4, batch_first=True, alpha=1.2)
        attention.load_state_dict(layer.self_attn.state_dict())
        layer.self_attn = attention
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention.external import ExternalAttention
from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.kappa import Kappa
from fna_lightning.attention.nested import check_same_lengths, pad
from fna_lightning.attention.torch_masks import check_inputs, check_masks, merge_masks
from fna_lightning.attention.tracing import NotScriptable, Proxy, as_fx_node


class FractionalMultiheadAttention(NotScriptable, nn.MultiheadAttention):
    """``nn.MultiheadAttention`` whose weights are a power law of the distance between query and key.

    PyTorch's conventions apply: True in ``key_padding_mask`` and in a boolean ``attn_mask`` means "may *not* attend",
    and a float mask is added to the logits. A query that may attend to no key gets 0 (plus the bias of the output
    projection), not NaN. Errors have the types that PyTorch's layer raises.

    Args:
        embed_dim: width of a token.
        num_heads: number of heads; must divide ``embed_dim``.
        dropout: probability of dropping an attention weight in training.
        bias: whether the projections have biases.
        add_bias_kv: whether a learned key and value are appended to the keys and values.
        add_zero_attn: whether a key and a value of zeros are appended to the keys and values.
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
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
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
        if embed_dim > 0 and num_heads > 0 and embed_dim % num_heads:
            raise AssertionError(
                f"embed_dim ({embed_dim}) must be a multiple of num_heads ({num_heads}); change one of them"
            )
        super().__init__(
            embed_dim,
            num_heads,
            dropout,
            bias,
            add_bias_kv,
            add_zero_attn,
            kdim,
            vdim,
            batch_first,
            device,
            dtype,
        )
        self.packed_weight = self._qkv_same_embed_dim
        # A private attribute of PyTorch, and the only per-module way to keep the fast path of
        # nn.TransformerEncoderLayer off: in evaluation that path does not call this module but computes dot-product
        # attention from its weights, unless the attribute says that the projections are separate.
        self._qkv_same_embed_dim = False
        core = ExternalAttention(Fractional(alpha, kappa, **options), num_heads, embed_dim // num_heads)
        self.core = core.to(device=device, dtype=dtype)

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

        Nested tensors (B, N, E) with a length for each sequence are padded for the call, also in training. The output
        is nested if ``query`` is. The weights are dense; their rows for padding have no meaning.

        Args:
            query: (B, N, E), (N, B, E) if not ``batch_first``, or (N, E) for one sequence.
            key: as ``query`` with M tokens of width ``kdim``.
            value: as ``key`` with width ``vdim``.
            key_padding_mask: (B, M), True (or -inf) where a key is padding; a finite float is added to its logits.
            need_weights: also return the weights, which needs an (N, M) matrix; False is faster. They have the dtype
                of the output and, in training, the dropout of the call.
            attn_mask: (N, M) or (B * heads, N, M), True where attention is forbidden, or a float to add.
            average_attn_weights: return the mean weights of the heads, (B, N, M), rather than (B, H, N, M).
            is_causal: a hint that ``attn_mask`` is the causal mask; it needs ``attn_mask``, as in PyTorch. Without
                padding mask and weights the mask is then not read.
        """
        if isinstance(query, Proxy):
            masks = (key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal)
            return as_fx_node(self, query, (query, key, value, *masks))
        if query.is_nested or key.is_nested or value.is_nested:
            return self._nested_forward(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
        is_self = query is key
        check_inputs(self, query, key, value, key_padding_mask, attn_mask, is_causal)
        unbatched = query.dim() == 2
        if unbatched:
            query, key, value = query[None], key[None], value[None]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
        elif not self.batch_first:
            query, key, value = query.transpose(0, 1), key.transpose(0, 1), value.transpose(0, 1)
        q, k, v = self._heads(query, key, value)
        causal = is_causal and key_padding_mask is None and not need_weights and self.bias_k is None
        causal = causal and not self.add_zero_attn
        if causal:
            attn_mask = None
        check_masks(key_padding_mask, attn_mask, q, k, need_weights)
        k, v, extra_keys = self._append_keys(k, v)
        mask, bias = merge_masks(key_padding_mask, attn_mask, q, extra_keys)
        dropout = self.dropout if self.training else 0.0
        weights: Tensor | None = None
        if (need_weights and dropout) or dropout >= 1.0:
            weights = self._dropped_weights(q, k, mask, bias, dropout)
            out = weights @ v
        else:
            out = self.core(q, k, v, mask, bias=bias, is_causal=causal, dropout=dropout, is_self=is_self)
            if need_weights:
                weights = self.core.attention.weights(q, k, mask, bias=bias).to(q.dtype)
        out = self.out_proj(out.transpose(1, 2).flatten(2))
        if not need_weights:
            weights = None
        elif average_attn_weights and weights is not None:
            weights = weights.mean(dim=1)
        if unbatched:
            return out[0], None if weights is None else weights[0]
        return out if self.batch_first else out.transpose(0, 1), weights

    def _nested_forward(
        self, query: Tensor, key: Tensor, value: Tensor, key_padding_mask: Tensor | None, *options: Any
    ) -> tuple[Tensor, Tensor | None]:
        """Return the output for nested tensors, by padding them."""
        if not self.batch_first:
            raise AssertionError("nested tensors need batch_first=True, because their first axis is the batch")
        tensors = {"query": query, "key": key, "value": value}
        padded = {id(x): pad(name, x) for name, x in tensors.items() if x.is_nested}
        queries, keys, values = (padded.get(id(x)) for x in tensors.values())
        check_same_lengths("key", keys, "value", values)
        if keys is not None:
            if key_padding_mask is not None:
                raise AssertionError("a nested key has lengths of its own; key_padding_mask must be None")
            key_padding_mask = ~keys.tokens()
        # The same tensor for the same argument: query is key means self-attention.
        query, key, value = (padded[id(x)].dense if id(x) in padded else x for x in tensors.values())
        out, weights = self.forward(query, key, value, key_padding_mask, *options)
        return out if queries is None else queries.nest(out), weights

    def _heads(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.packed_weight:
            matrices = self.in_proj_weight.chunk(3)
        else:
            matrices = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        q, k, v = (
            F.linear(tokens, matrix, bias).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)
            for tokens, matrix, bias in zip((query, key, value), matrices, biases, strict=True)
        )
        return q, k, v

    def _append_keys(self, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, int]:
        """Return keys and values with those of ``add_bias_kv`` and ``add_zero_attn``, and how many these are."""
        if self.bias_k is None and not self.add_zero_attn:
            return k, v, 0
        extra_keys: list[Tensor] = []
        extra_values: list[Tensor] = []
        if self.bias_k is not None and self.bias_v is not None:
            for extra, learned in ((extra_keys, self.bias_k), (extra_values, self.bias_v)):
                extra.append(learned.view(self.num_heads, 1, -1).expand(len(k), -1, -1, -1).to(k.dtype))
        if self.add_zero_attn:
            extra_keys.append(torch.zeros_like(k[:, :, :1]) if k.size(2) else k.new_zeros(*k.shape[:2], 1, k.size(3)))
            extra_values.append(torch.zeros_like(extra_keys[-1]))
        return torch.cat([k, *extra_keys], dim=2), torch.cat([v, *extra_values], dim=2), len(extra_keys)

    def _dropped_weights(
        self, q: Tensor, k: Tensor, mask: Tensor | None, bias: Tensor | None, dropout: float
    ) -> Tensor:
        """Return the weights after dropout, in the dtype of the queries, for output and caller alike."""
        attention = self.core.attention
        if attention.training:
            attention.observe_keys(k, attention.mask_for(q, k, mask, bias=bias))
        return F.dropout(attention.weights(q, k, mask, bias=bias), dropout).to(q.dtype)

    def _reset_parameters(self) -> None:
        # PyTorch's method reads the private attribute of the constructor, which must then describe the parameters.
        same, self._qkv_same_embed_dim = self._qkv_same_embed_dim, self.in_proj_weight is not None
        super()._reset_parameters()
        self._qkv_same_embed_dim = same
