"""Attention weights of a model on a few chosen sequences.

Training uses fused kernels that never hold an (n, m) matrix. Here the model runs once more, on the chosen sequences
only, with a hook before every attention layer that recomputes its weights by the reference formula. Calls of PyTorch's
``scaled_dot_product_attention`` by other layers are intercepted, see ``introspection.sdpa``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.graph import rollout
from fna_lightning.introspection.eager import eager
from fna_lightning.introspection.layers import (
    AttentionLayer,
    LayerCall,
    attention_layers,
    has_other_sequence,
    layer_call,
)
from fna_lightning.introspection.sdpa import recording_sdpa

__all__ = ["AttentionMap", "attention_layers", "attention_maps", "evaluating", "layer_rollout"]


@dataclass(frozen=True)
class AttentionMap:
    """The attention weights of one layer.

    Attributes:
        weights: (B, H, n, m), without gradient; padded keys have weight 0.
        lengths: (B,) number of real tokens among the n queries; None if unknown.
        is_self: whether this is self-attention, so that the weights are a graph of one token sequence.
    """

    weights: Tensor
    lengths: Tensor | None
    is_self: bool


def attention_maps(
    model: nn.Module,
    run: Callable[[], Mapping[str, Tensor] | None],
    layers: Sequence[str] | None = None,
    *,
    device: torch.device | None = None,
) -> dict[str, AttentionMap]:
    """Return the weights of every attention layer that ``run`` passes through, by module name, in the order of calls.

    Layers are those of this package and those of any other model that compute their attention with PyTorch's
    ``scaled_dot_product_attention`` or ``nn.MultiheadAttention``, as the models of timm and most models of transformers
    (``attn_implementation="sdpa"``, the default) do. A layer that is called more than once keeps its last call.

    The model is in evaluation mode during the call, so there is no dropout and no random number is drawn.

    Args:
        model: contains the layers; any PyTorch module.
        run: runs the model and returns the number of real tokens of each sequence, by prefix of the module name:
            ``{"": lengths}`` for all layers, ``{"encoder": ..., "decoder": ...}`` for translation. None means no
            padding.
        layers: names of the layers to record; None records all.
        device: where the weights are kept; None keeps those of all layers on the device of the model.

    Example:
        >>> from fna_lightning.attention import DotProduct, MultiheadAttention
        >>> layer = MultiheadAttention(8, 2, DotProduct())
        >>> maps = attention_maps(layer, lambda: {"": torch.tensor([len(layer(torch.rand(1, 5, 8))[0])])})
        >>> maps[""].weights.shape
        torch.Size([1, 2, 5, 5])
        >>> encoder = torch.nn.TransformerEncoderLayer(8, 2, batch_first=True)
        >>> list(attention_maps(encoder, lambda: (encoder(torch.rand(1, 5, 8)), None)[1]))
        ['self_attn']
    """
    known = attention_layers(model)
    recorded: dict[str, tuple[Tensor, bool]] = {}

    other_layers: list[str] = []

    def record_other(name: str, weights: Tensor, is_self: bool) -> None:
        other_layers.append(name)
        if layers is None or name in layers:
            recorded[name] = weights.to(device), is_self

    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(model))
        stack.enter_context(eager())
        for name, layer in known.items():
            if layers is None or name in layers:
                for handle in _register_hooks(model, name, layer, recorded, device):
                    stack.callback(handle.remove)
        if layers is None or not known.keys() >= set(layers):
            stack.enter_context(recording_sdpa(model, record_other))
        lengths = run() or {}
    if unknown := sorted(set(layers or ()) - known.keys() - recorded.keys()):
        names = ", ".join(dict.fromkeys([*known, *other_layers])) or "none"
        raise ValueError(f"no attention layer {unknown[0]!r} in this model; it has {names}")
    return {
        name: AttentionMap(weights, _layer_lengths(name, lengths, weights), is_self)
        for name, (weights, is_self) in recorded.items()
    }


def layer_rollout(maps: Mapping[str, AttentionMap], *, residual: float = 0.5) -> Tensor:
    """Return the (B, n, n) rollout over the self-attention layers of ``maps``, in their order, with heads averaged.

    All layers must be on the same tokens: of an encoder-decoder model, pass the maps of the encoder or of the decoder.

    Args:
        maps: as returned by ``attention_maps``; cross-attention is left out.
        residual: share of the residual connection, see ``graph.rollout``.
    """
    self_maps = [layer_map for layer_map in maps.values() if layer_map.is_self]
    if not self_maps:
        raise ValueError("a rollout needs at least one self-attention layer, got 0; pass the maps of a whole model")
    return rollout([layer_map.weights.mean(dim=1) for layer_map in self_maps], self_maps[0].lengths, residual=residual)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode inside the context and restore its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _register_hooks(
    model: nn.Module,
    name: str,
    layer: AttentionLayer,
    recorded: dict[str, tuple[Tensor, bool]],
    device: torch.device | None,
) -> list[Any]:
    """Register hooks that record the weights of one layer, and return their handles."""
    cross = False

    def detect_cross(host: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal cross
        cross = has_other_sequence(host, args, kwargs)

    def record(layer: AttentionLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = layer_call(layer, args, kwargs)
        if call.cached:
            raise ValueError(f"{name} runs with a key-value cache; run the model on whole sequences, without a cache")
        recorded[name] = call.weights().to(device), _is_self(call, cross)

    host = model.get_submodule(name)
    host_hooks = [] if host is layer else [host.register_forward_pre_hook(detect_cross, with_kwargs=True)]
    return [*host_hooks, layer.register_forward_pre_hook(record, with_kwargs=True)]


def _is_self(call: LayerCall, cross: bool) -> bool:
    if call.is_self is not None:
        return call.is_self
    return not cross and call.q.size(-2) == call.k.size(-2)


def _layer_lengths(name: str, lengths: Mapping[str, Tensor], weights: Tensor) -> Tensor | None:
    """Return the lengths whose key is the longest prefix of ``name``."""
    prefixes = [prefix for prefix in lengths if not prefix or name == prefix or name.startswith(f"{prefix}.")]
    if not prefixes:
        return None
    selected = lengths[max(prefixes, key=len)]
    if selected.shape != weights.shape[:1]:
        raise ValueError(
            f"lengths of {name} must be ({weights.size(0)},), one for each sequence, got {tuple(selected.shape)}"
        )
    return selected.to(weights.device).clamp(max=weights.size(-2))
