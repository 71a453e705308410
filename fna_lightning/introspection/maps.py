"""Attention weights on demand: what a model attends to on a few chosen sequences.

Training runs on fused kernels that never hold an (n, m) matrix. Here the model runs once more, on the chosen sequences
alone, with a hook before every attention layer that recomputes its weights by the written-out formula.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.introspection.layers import AttentionLayer, LayerCall, attention_layers, call_of

__all__ = ["AttentionMap", "attention_layers", "attention_maps", "evaluating"]

# what the modules around a site call the other sequence of cross-attention
_OTHER_SEQUENCE = ("key_value_states", "encoder_hidden_states")


@dataclass(frozen=True)
class AttentionMap:
    """The weights of one layer.

    Attributes:
        weights: (B, H, n, m), without gradient; padded keys weigh 0.
        lengths: (B,) real tokens among the n queries; None if nobody said so.
        is_self: whether the tokens attend to each other, so that the weights are the steps of a walk.
    """

    weights: Tensor
    lengths: Tensor | None
    is_self: bool


def attention_maps(
    model: nn.Module,
    run: Callable[[], Mapping[str, Tensor] | None],
    layers: Sequence[str] | None = None,
) -> dict[str, AttentionMap]:
    """Return the weights of every attention layer that ``run`` passes through, by module name.

    The model is in evaluation mode for the while, so nothing is dropped and no random number is drawn.

    Args:
        model: holds the layers.
        run: runs the model and returns how many tokens of each sequence are real, by the module names' beginnings:
            ``{"": lengths}`` for all layers, ``{"encoder": ..., "decoder": ...}`` for translation. None: no padding.
        layers: names of the layers to look at; None for all.

    Example:
        >>> from fna_lightning.attention import DotProduct, MultiheadAttention
        >>> layer = MultiheadAttention(8, 2, DotProduct())
        >>> maps = attention_maps(layer, lambda: {"": torch.tensor([len(layer(torch.rand(1, 5, 8))[0])])})
        >>> maps[""].weights.shape
        torch.Size([1, 2, 5, 5])
    """
    known = attention_layers(model)
    if unknown := sorted(set(layers or ()) - known.keys()):
        raise ValueError(f"no attention layer {unknown[0]!r} in this model; it has {', '.join(known) or 'none'}")
    found: dict[str, tuple[Tensor, bool]] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(model))
        for name, layer in known.items():
            if layers is None or name in layers:
                for handle in _watch(model, name, layer, found):
                    stack.callback(handle.remove)
        lengths = run() or {}
    return {
        name: AttentionMap(weights, _lengths_of(name, lengths, weights), is_self)
        for name, (weights, is_self) in found.items()
    }


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Put every module in evaluation mode for a while, each then back in its own."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _watch(model: nn.Module, name: str, layer: AttentionLayer, found: dict[str, tuple[Tensor, bool]]) -> list[Any]:
    """Return the handles of hooks that record the weights of one layer."""
    cross = False

    def look_around(host: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        nonlocal cross
        cross = _has_other_sequence(host, args, kwargs)

    def record(layer: AttentionLayer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = call_of(layer, args, kwargs)
        if call.cached:
            raise ValueError(f"{name} runs with a key-value cache; ask for weights of whole sequences, without one")
        found[name] = call.weights(), _is_self(call, cross)

    host = model.get_submodule(name)
    around = [] if host is layer else [host.register_forward_pre_hook(look_around, with_kwargs=True)]
    return [*around, layer.register_forward_pre_hook(record, with_kwargs=True)]


def _is_self(call: LayerCall, cross: bool) -> bool:
    if call.is_self is not None:
        return call.is_self
    return not cross and call.q.size(-2) == call.k.size(-2)


def _has_other_sequence(host: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    given = inspect.signature(type(host).forward).bind(host, *args, **kwargs).arguments
    given = {**given, **given.get("kwargs", {})}
    return any(given.get(name) is not None for name in _OTHER_SEQUENCE)


def _lengths_of(name: str, lengths: Mapping[str, Tensor], weights: Tensor) -> Tensor | None:
    """Return the lengths given for the longest beginning of ``name``."""
    fitting = [start for start in lengths if not start or name == start or name.startswith(f"{start}.")]
    if not fitting:
        return None
    chosen = lengths[max(fitting, key=len)]
    if chosen.shape != weights.shape[:1]:
        raise ValueError(
            f"lengths of {name} must be ({weights.size(0)},), one for each sequence, got {tuple(chosen.shape)}"
        )
    return chosen.clamp(max=weights.size(-2))
