"""``attn_implementation="fna"``: the attention function that is registered with transformers."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from transformers.utils.output_capturing import _active_collector

from fna_lightning.attention import DotProduct, ExternalAttention
from fna_lightning.attention.inputs import heads_per_key_head, repeat_heads
from fna_lightning.integrations.hf.layers import core_of
from fna_lightning.integrations.hf.options import UNSUPPORTED_OPTIONS, refusal
from fna_lightning.integrations.hf.window import WindowMask, windowed_attention


def fna_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | WindowMask | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return (B, N, H, D) outputs and, if requested, the weights, as AttentionInterface requires.

    Args:
        module: the calling attention layer.
        query: (B, H, N, D).
        key: (B, G, M, D); G divides H, and each key head is shared by a group of query heads.
        value: (B, G, M, D_v).
        attention_mask: boolean (True = may attend) or a window, as returned by ``fna_mask``; or a float mask given by
            the user.
        scaling: scale of dot products; ignored by FNA, which has kappa.
        dropout: probability of dropping a weight.
        is_causal: overrides the layer's own ``is_causal``.
        position_bias: added to the logits (T5).
        kwargs: further options of the layer.
    """
    for name in UNSUPPORTED_OPTIONS:
        if kwargs.get(name) is not None:
            raise ValueError(refusal(type(module).__name__, name))
    core = core_of(module)
    if isinstance(core.attention, DotProduct):
        core.attention.scale = scaling
    with_weights = _weights_requested(kwargs)
    if isinstance(attention_mask, WindowMask):
        if not (with_weights or position_bias is not None or _has_hooks(core)):
            out = windowed_attention(core, query, key, value, attention_mask, dropout)
            return out.transpose(1, 2).contiguous(), None
        attention_mask = attention_mask.dense()
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    # Without a mask the layer relies on the flag; a single query attends to all earlier keys.
    causal = bool(causal) and attention_mask is None and query.size(2) > 1
    empty = key.size(2) - query.size(2) if causal else 0
    if empty > 0:
        # The rest of a static cache is empty.
        key, value = key[:, :, : query.size(2)], value[:, :, : query.size(2)]
        position_bias = None if position_bias is None else position_bias[..., : query.size(2)]
    mask, bias = _mask_and_bias(attention_mask, position_bias)
    weights = None
    if with_weights:
        weights = core.attention.weights(query, key, mask, bias=bias, is_causal=causal, enable_gqa=True)
    if weights is not None and weights.requires_grad and not _has_hooks(core):
        # The output is computed from the returned weights, so that they have a gradient, as in eager attention.
        weights = F.dropout(weights, dropout)
        out = weights.to(value.dtype) @ repeat_heads(value, heads_per_key_head(query, key))
    else:
        out = core(query, key, value, mask, bias=bias, is_causal=causal, dropout=dropout, enable_gqa=True)
    if weights is not None and empty > 0:
        # Eager attention returns a column for every key of a static cache.
        weights = F.pad(weights, (0, empty))
    return out.transpose(1, 2).contiguous(), weights


def _weights_requested(options: dict[str, Any]) -> bool:
    """Whether the caller of the model asked for the attention weights.

    Most models do not pass ``output_attentions`` on to their layers. transformers then collects the outputs of the
    layers in hooks, and says so in a context variable, which torch.compile cannot trace.
    """
    if options.get("output_attentions"):
        return True
    if torch.compiler.is_compiling():
        return False
    return any("attentions" in name for name in _active_collector.get() or ())


def _has_hooks(core: ExternalAttention) -> bool:
    """Whether the calls of a core are observed; an observer needs all queries and keys in one call."""
    return bool(core._forward_pre_hooks or core._forward_hooks)


def _mask_and_bias(mask: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return a boolean mask and a bias; in a float mask the lowest number of its dtype means "masked out"."""
    if mask is None or mask.dtype == torch.bool:
        return mask, bias
    masked_out = mask <= torch.finfo(mask.dtype).min / 2
    mask = mask.masked_fill(masked_out, 0.0)
    return ~masked_out, mask if bias is None else bias + mask
