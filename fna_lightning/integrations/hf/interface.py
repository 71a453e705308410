"""``attn_implementation="fna"``: the function transformers' attention layers call, and its masks."""

from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from fna_lightning.attention import DotProduct
from fna_lightning.integrations.hf.layers import attach_at_construction, site_of
from fna_lightning.integrations.hf.settings import NAME

# what a layer may ask for that has no meaning for a kernel of distances
_UNKNOWN = {
    "softcap": "caps the logits of dot products",
    "s_aux": "adds attention sinks to the softmax",
    "cache": "reads keys from a paged cache",
}


def fna_attention(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    position_bias: Tensor | None = None,
    **kwargs: Any,
) -> tuple[Tensor, Tensor | None]:
    """Return (B, N, H, D) outputs and, if the call wants them, the weights: the contract of AttentionInterface.

    Args:
        module: the attention layer that calls.
        query: (B, H, N, D).
        key: (B, G, M, D), G divides H: each key head serves a group of query heads.
        value: (B, G, M, D_v).
        attention_mask: boolean, True = may attend, as ``sdpa_mask`` makes it; or a float mask of the user's own.
        scaling: of dot products; distances have kappa instead.
        dropout: probability of dropping a weight.
        is_causal: overrides the layer's own ``is_causal``.
        position_bias: added to the logits (T5).
        kwargs: what else a layer passes on.
    """
    for name, why in _UNKNOWN.items():
        if kwargs.get(name) is not None:
            raise ValueError(f"{type(module).__name__} {why} ({name}); FNA has no such thing: use another model")
    site = site_of(module)
    groups = query.size(1) // key.size(1)
    if groups > 1:
        key, value = key.repeat_interleave(groups, dim=1), value.repeat_interleave(groups, dim=1)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    # without a mask the layer relies on the flag, except for a single query, which sees everything before it
    causal = bool(causal) and attention_mask is None and query.size(2) > 1
    if causal and key.size(2) > query.size(2):
        # the empty rest of a static cache
        key, value = key[:, :, : query.size(2)], value[:, :, : query.size(2)]
        position_bias = None if position_bias is None else position_bias[..., : query.size(2)]
    mask, bias = _split(attention_mask, position_bias)
    if isinstance(site.attention, DotProduct):
        site.attention.scale = scaling
    out = site(query, key, value, mask, bias=bias, is_causal=causal, dropout=dropout)
    weights = None
    if kwargs.get("output_attentions"):
        weights = site.attention.weights(query, key, mask, bias=bias, is_causal=causal)
    return out.transpose(1, 2).contiguous(), weights


def _split(mask: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return a boolean mask and a bias; the lowest number of its type in a float mask means "hidden"."""
    if mask is None or mask.dtype == torch.bool:
        return mask, bias
    hidden = mask <= torch.finfo(mask.dtype).min / 2
    mask = mask.masked_fill(hidden, 0.0)
    return ~hidden, mask if bias is None else bias + mask


def register() -> None:
    """Make transformers know the name; models made with it get their sites when they are made."""
    AttentionInterface.register(NAME, fna_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    made = PreTrainedModel.post_init

    @wraps(made)
    def post_init(self: PreTrainedModel) -> None:
        made(self)
        attach_at_construction(self)

    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]
