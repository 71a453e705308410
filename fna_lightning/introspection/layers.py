"""One call of an attention layer, seen from outside: which queries met which keys under which restrictions.

A layer is a ``MultiheadAttention`` of ours, or an ``ExternalAttention`` in somebody else's model.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fna_lightning.attention import Attention, ExternalAttention, MultiheadAttention

AttentionLayer = MultiheadAttention | ExternalAttention

_MULTIHEAD = inspect.signature(MultiheadAttention.forward)
_SITE = inspect.signature(ExternalAttention.forward)


@dataclass(frozen=True)
class LayerCall:
    """What a layer was asked to do.

    Attributes:
        restrictions: mask, bias and causality, as ``Attention.weights`` takes them.
        is_self: whether the tokens attend to each other; None if the layer cannot tell.
    """

    attention: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    restrictions: dict[str, Any] = field(default_factory=dict)
    is_self: bool | None = None
    cached: bool = False

    def weights(self) -> Tensor:
        """Return the (B, H, N, M) weights by the written-out formula."""
        return self.attention.weights(self.q, self.k, **self.restrictions)


def attention_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return the attention layers of a model by name, in the order they were made.

    A site is known by the name of the module that holds it.
    """
    found: dict[str, AttentionLayer] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, MultiheadAttention):
            found[name] = layer
        elif isinstance(layer, ExternalAttention):
            found[name.rpartition(".")[0]] = layer
    return found


def call_of(layer: AttentionLayer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LayerCall:
    """Return what ``layer(*args, **kwargs)`` means."""
    if isinstance(layer, ExternalAttention):
        given = _SITE.bind(layer, *args, **kwargs)
        given.apply_defaults()
        call = given.arguments
        restrictions = {name: call[name] for name in ("mask", "bias", "is_causal")}
        return LayerCall(layer.attention, call["q"], call["k"], call["v"], restrictions, call["is_self"])
    given = _MULTIHEAD.bind(layer, *args, **kwargs)
    given.apply_defaults()
    call = given.arguments
    x, context = call["x"], call["context"]
    q, k, v = layer.heads(x, context)
    restrictions = {name: call[name] for name in ("mask", "is_causal")}
    is_self = context is None or context is x
    return LayerCall(layer.attention, q, k, v, restrictions, is_self, call["cache"] is not None)


def result_of(layer: AttentionLayer, mixed: Tensor) -> Tensor:
    """Return what the layer makes of (B, H, N, D_v) weighted means."""
    return mixed if isinstance(layer, ExternalAttention) else layer.out(mixed.transpose(1, 2).flatten(2))
