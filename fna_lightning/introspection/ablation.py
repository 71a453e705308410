"""A model whose attention is cut at random while it runs."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.graph import ablate
from fna_lightning.introspection.layers import AttentionLayer, attention_layers, call_of, result_of


@contextmanager
def ablated(model: nn.Module, p: float, kind: str, generator: torch.Generator) -> Iterator[None]:
    """Remove ``kind`` ("edges" or "nodes") of every attention layer with probability ``p`` for a while.

    The rule of ``graph.ablate``: survivors share the row as before, a row left empty gives 0.
    """

    def cut(layer: AttentionLayer, args: tuple[Any, ...], kwargs: dict[str, Any], _: Tensor) -> Tensor:
        call = call_of(layer, args, kwargs)
        return result_of(layer, ablate(call.weights(), p, kind=kind, generator=generator) @ call.v)

    with ExitStack() as stack:
        for layer in attention_layers(model).values():
            stack.callback(layer.register_forward_hook(cut, with_kwargs=True).remove)
        yield
