"""FNA in timm's vision transformers, as the class of their ``attn_layer``.

    from fna_lightning.integrations.timm import FractionalAttention
    model = timm.create_model("vit_tiny_patch16_224", attn_layer=FractionalAttention)

timm takes a class and constructs it with its own arguments, so settings other than alpha = 1.2 and the paper's rule for
vision are given by a subclass: ``fractional(alpha=1.6, kappa=8.0)`` returns one.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor

try:
    from timm.layers.attention import Attention as TimmAttention
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fna_lightning.integrations.timm needs timm, which is not installed; pip install 'fna-lightning[timm]'"
    ) from error

from fna_lightning.attention import ExternalAttention, Fractional


class FractionalAttention(TimmAttention):
    """timm's attention layer with the same parameters and options, and FNA instead of dot-product attention."""

    settings: ClassVar[dict[str, Any]] = {"alpha": 1.2, "kappa": "vision"}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.core = ExternalAttention(Fractional(**self.settings), self.num_heads, self.head_dim)

    def forward(self, x: Tensor, attn_mask: Tensor | None = None, is_causal: bool = False) -> Tensor:
        """Map (B, N, C) tokens to (B, N, C); ``attn_mask`` is boolean (True = may attend) or added to the logits."""
        gate = None if self.gate is None else self.gate(x).sigmoid()
        q, k, v = self.qkv(x).unflatten(-1, (3, self.num_heads, self.head_dim)).permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.q_norm(q), self.k_norm(k)
        is_boolean = attn_mask is None or attn_mask.dtype == torch.bool
        out = self.core(
            q,
            k,
            v,
            attn_mask if is_boolean else None,
            bias=None if is_boolean else attn_mask,
            is_causal=is_causal,
            dropout=self.attn_drop.p if self.training else 0.0,
            is_self=True,
        )
        out = self.norm(out.transpose(1, 2).flatten(2))
        out = out if gate is None else out * gate
        return self.proj_drop(self.proj(out))


def fractional(**settings: Any) -> type[FractionalAttention]:
    """Return a subclass of ``FractionalAttention`` with these settings of ``Fractional``.

    Example:
        >>> fractional(alpha=1.6, learn=["kappa"]).settings
        {'alpha': 1.6, 'kappa': 'vision', 'learn': ['kappa']}
    """
    merged = {**FractionalAttention.settings, **settings}
    # Invalid settings are an error here and not only when a model is built.
    Fractional(**merged)
    return type("FractionalAttention", (FractionalAttention,), {"settings": merged})
