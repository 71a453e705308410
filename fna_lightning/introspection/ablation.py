"""Run a model with randomly ablated attention."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.graph import ablate
from fna_lightning.introspection.eager import eager
from fna_lightning.introspection.layers import AttentionLayer, attention_layers, layer_call, layer_output


@contextmanager
def ablated(model: nn.Module, p: float, kind: str, generator: torch.Generator) -> Iterator[None]:
    """Remove ``kind`` ("edges" or "nodes") from every attention layer with probability ``p`` inside the context.

    Weights are removed as in ``graph.ablate``: the remaining weights of a row are rescaled, and an empty row gives 0.
    """

    def replace_output(layer: AttentionLayer, args: tuple[Any, ...], kwargs: dict[str, Any], _: Tensor) -> Tensor:
        call = layer_call(layer, args, kwargs)
        return layer_output(layer, ablate(call.weights(), p, kind=kind, generator=generator) @ call.v)

    with ExitStack() as stack:
        stack.enter_context(eager())
        for layer in attention_layers(model).values():
            stack.callback(layer.register_forward_hook(replace_output, with_kwargs=True).remove)
        yield
