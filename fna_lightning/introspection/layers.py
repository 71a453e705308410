"""The attention layers of a model and the inputs of one of their calls.

A layer is a ``MultiheadAttention`` of this package, or an ``ExternalAttention`` in a third-party model.
"""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from fna_lightning.attention import Attention, ExternalAttention, MultiheadAttention
from fna_lightning.attention.inputs import heads_per_key_head, repeat_heads

# keyword arguments by which transformers' modules receive the other sequence of cross-attention
OTHER_SEQUENCE = ("key_value_states", "encoder_hidden_states")

AttentionLayer = MultiheadAttention | ExternalAttention

_MULTIHEAD = inspect.signature(MultiheadAttention.forward)
_EXTERNAL = inspect.signature(ExternalAttention.forward)


@dataclass(frozen=True)
class LayerCall:
    """Inputs of one call of an attention layer, projected and split into heads.

    Attributes:
        attention: the attention of the layer.
        q: (B, H, N, D) queries.
        k: (B, H, M, D) keys; grouped heads are repeated.
        v: (B, H, M, D_v) values; grouped heads are repeated.
        masking: mask, bias and causality, as keyword arguments of ``Attention.weights``.
        is_self: whether the call is self-attention; None if the layer cannot tell.
        cached: whether the call uses a key-value cache.
    """

    attention: Attention
    q: Tensor
    k: Tensor
    v: Tensor
    masking: dict[str, Any] = field(default_factory=dict)
    is_self: bool | None = None
    cached: bool = False

    def weights(self) -> Tensor:
        """Return the (B, H, N, M) attention weights by the reference formula."""
        return self.attention.weights(self.q, self.k, **self.masking)


def attention_layers(model: nn.Module) -> dict[str, AttentionLayer]:
    """Return the attention layers of a model by module name, in order of registration.

    An ``ExternalAttention`` has the name of the module that contains it.
    """
    layers: dict[str, AttentionLayer] = {}
    for name, layer in model.named_modules():
        if isinstance(layer, MultiheadAttention):
            layers[name] = layer
        elif isinstance(layer, ExternalAttention):
            layers[name.rpartition(".")[0]] = layer
    return layers


def layer_call(layer: AttentionLayer, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> LayerCall:
    """Return the inputs of the call ``layer(*args, **kwargs)``."""
    signature = _EXTERNAL if isinstance(layer, ExternalAttention) else _MULTIHEAD
    bound = signature.bind(layer, *args, **kwargs)
    bound.apply_defaults()
    inputs = bound.arguments
    if isinstance(layer, ExternalAttention):
        masking = {name: inputs[name] for name in ("mask", "bias", "is_causal")}
        q, k, v = inputs["q"], inputs["k"], inputs["v"]
        if inputs["enable_gqa"]:
            group_size = heads_per_key_head(q, k)
            k, v = repeat_heads(k, group_size), repeat_heads(v, group_size)
        return LayerCall(layer.attention, q, k, v, masking, inputs["is_self"])
    x, context = inputs["x"], inputs["context"]
    q, k, v = layer.heads(x, context)
    masking = {name: inputs[name] for name in ("mask", "is_causal")}
    is_self = context is None or context is x
    return LayerCall(layer.attention, q, k, v, masking, is_self, inputs["cache"] is not None)


def layer_output(layer: AttentionLayer, mixed: Tensor) -> Tensor:
    """Return the output of the layer for (B, H, N, D_v) weighted means of the values."""
    return mixed if isinstance(layer, ExternalAttention) else layer.out(mixed.transpose(1, 2).flatten(2))


def has_other_sequence(module: nn.Module, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call of a transformers module is cross-attention, by the names of its arguments."""
    try:
        arguments = inspect.signature(type(module).forward).bind(module, *args, **kwargs).arguments
    except TypeError:
        # the signature of forward does not say how the module is called
        arguments = dict(kwargs)
    arguments = {**arguments, **arguments.get("kwargs", {})}
    return any(arguments.get(name) is not None for name in OTHER_SEQUENCE)
