"""``attn_implementation="fna"``: the attention function and mask function registered with transformers."""

from functools import wraps
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AttentionInterface, PreTrainedModel
from transformers.masking_utils import AttentionMaskInterface, sdpa_mask

from fna_lightning.attention import DotProduct
from fna_lightning.integrations.hf.layers import attach_at_construction, core_of
from fna_lightning.integrations.hf.settings import NAME

# options of attention layers that FNA does not support
_UNSUPPORTED = {
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
    """Return (B, N, H, D) outputs and, if requested, the weights, as AttentionInterface requires.

    Args:
        module: the calling attention layer.
        query: (B, H, N, D).
        key: (B, G, M, D); G divides H, and each key head is shared by a group of query heads.
        value: (B, G, M, D_v).
        attention_mask: boolean (True = may attend), as returned by ``sdpa_mask``; or a float mask given by the user.
        scaling: scale of dot products; ignored by FNA, which has kappa.
        dropout: probability of dropping a weight.
        is_causal: overrides the layer's own ``is_causal``.
        position_bias: added to the logits (T5).
        kwargs: further options of the layer.
    """
    for name, effect in _UNSUPPORTED.items():
        if kwargs.get(name) is not None:
            raise ValueError(
                f"{type(module).__name__} {effect} ({name}), which FNA does not support; use another model"
            )
    core = core_of(module)
    causal = is_causal if is_causal is not None else getattr(module, "is_causal", True)
    # Without a mask the layer relies on the flag; a single query attends to all earlier keys.
    causal = bool(causal) and attention_mask is None and query.size(2) > 1
    if causal and key.size(2) > query.size(2):
        # The rest of a static cache is empty.
        key, value = key[:, :, : query.size(2)], value[:, :, : query.size(2)]
        position_bias = None if position_bias is None else position_bias[..., : query.size(2)]
    mask, bias = _mask_and_bias(attention_mask, position_bias)
    if isinstance(core.attention, DotProduct):
        core.attention.scale = scaling
    out = core(query, key, value, mask, bias=bias, is_causal=causal, dropout=dropout, enable_gqa=True)
    weights = None
    if kwargs.get("output_attentions"):
        weights = core.attention.weights(query, key, mask, bias=bias, is_causal=causal, enable_gqa=True)
    return out.transpose(1, 2).contiguous(), weights


def _mask_and_bias(mask: Tensor | None, bias: Tensor | None) -> tuple[Tensor | None, Tensor | None]:
    """Return a boolean mask and a bias; in a float mask the lowest number of its dtype means "masked out"."""
    if mask is None or mask.dtype == torch.bool:
        return mask, bias
    masked_out = mask <= torch.finfo(mask.dtype).min / 2
    mask = mask.masked_fill(masked_out, 0.0)
    return ~masked_out, mask if bias is None else bias + mask


def register() -> None:
    """Register the name with transformers; models created with it get their attention cores in ``post_init``."""
    AttentionInterface.register(NAME, fna_attention)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    original = PreTrainedModel.post_init

    @wraps(original)
    def post_init(self: PreTrainedModel) -> None:
        original(self)
        attach_at_construction(self)

    PreTrainedModel.post_init = post_init  # type: ignore[method-assign]
