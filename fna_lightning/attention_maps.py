"""Attention weights on demand: what a model attends to on a few chosen sequences.

Training runs on fused kernels that never hold an (n, m) matrix. Here the model runs once more, on the chosen sequences
alone, with a hook before every ``MultiheadAttention`` that recomputes its weights by the written-out formula.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention import MultiheadAttention

_FORWARD = inspect.signature(MultiheadAttention.forward)


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


def attention_layers(model: nn.Module) -> dict[str, MultiheadAttention]:
    """Return the attention layers of a model by module name, in the order they were made."""
    return {name: layer for name, layer in model.named_modules() if isinstance(layer, MultiheadAttention)}


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
        >>> from fna_lightning.attention import DotProduct
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
                handle = layer.register_forward_pre_hook(_recorder(name, found), with_kwargs=True)
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


def _recorder(name: str, found: dict[str, tuple[Tensor, bool]]) -> Callable[..., None]:
    def record(layer: MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        given = _FORWARD.bind(layer, *args, **kwargs)
        given.apply_defaults()
        call = given.arguments
        if call["cache"] is not None:
            raise ValueError(f"{name} runs with a key-value cache; ask for weights of whole sequences, without one")
        x, context = call["x"], call["context"]
        q, k, _ = layer.heads(x, context)
        weights = layer.attention.weights(q, k, call["mask"], is_causal=call["is_causal"])
        found[name] = weights, context is None or context is x

    return record


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
