"""A model whose attention is cut at random while it runs."""

import inspect
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention import MultiheadAttention
from fna_lightning.attention_maps import attention_layers
from fna_lightning.graph import ablate

_FORWARD = inspect.signature(MultiheadAttention.forward)


@contextmanager
def ablated(model: nn.Module, p: float, kind: str, generator: torch.Generator) -> Iterator[None]:
    """Remove ``kind`` ("edges" or "nodes") of every attention layer with probability ``p`` for a while.

    The rule of ``graph.ablate``: survivors share the row as before, a row left empty gives 0.
    """

    def cut(layer: MultiheadAttention, args: tuple[Any, ...], kwargs: dict[str, Any], _: Tensor) -> Tensor:
        given = _FORWARD.bind(layer, *args, **kwargs)
        given.apply_defaults()
        call = given.arguments
        q, k, v = layer.heads(call["x"], call["context"])
        weights = layer.attention.weights(q, k, call["mask"], is_causal=call["is_causal"])
        mixed = ablate(weights, p, kind=kind, generator=generator) @ v
        return layer.out(mixed.transpose(1, 2).flatten(2))

    with ExitStack() as stack:
        for layer in attention_layers(model).values():
            stack.callback(layer.register_forward_hook(cut, with_kwargs=True).remove)
        yield
