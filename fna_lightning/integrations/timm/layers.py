"""The attention layers of a timm model: those that FNA can replace, and the others with the reason."""

import inspect
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from types import CodeType
from typing import Any

from torch import nn

from fna_lightning.attention import FractionalMultiheadAttention
from fna_lightning.integrations.timm.forwards import FORWARDS
from fna_lightning.integrations.timm.interception import FractionalLayer, class_name, defining_class
from fna_lightning.integrations.timm.refusals import NO_ATTENTION, REFUSED, UNKNOWN

# name of PyTorch's function, by which most layers compute their attention
SDPA = "scaled_dot_product_attention"
# attributes with the number of heads and their width, in the order in which they are tried
_HEADS = ("num_heads", "heads")
_WIDTHS = ("head_dim", "dim_head", "dim_head_qk", "key_dim", "qk_dim")
# layers with one head do not state the number
_SINGLE_HEAD = ("timm.models.iformer.SHMA", "timm.models.shvit.SHSA")


@dataclass(frozen=True)
class Inspection:
    """The attention layers of a model by name.

    Attributes:
        replaceable: layers whose attention FNA can replace, or has replaced.
        multihead: ``nn.MultiheadAttention`` modules, which are exchanged as a whole.
        refused: why FNA cannot replace the attention of the others.
    """

    replaceable: dict[str, nn.Module] = field(default_factory=dict)
    multihead: dict[str, nn.MultiheadAttention] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)


def inspect_model(model: nn.Module) -> Inspection:
    """Return the attention layers of a model; the model is not changed.

    Example:
        >>> import timm
        >>> layers = inspect_model(timm.create_model("cait_xxs24_224", depth=1))
        >>> list(layers.replaceable)
        ['blocks_token_only.0.attn', 'blocks_token_only.1.attn']
        >>> layers.refused["blocks.0.attn"].partition(",")[0]
        'TalkingHeadAttn mixes the logits of different heads (talking heads)'
    """
    layers = Inspection()
    for name, module in model.named_modules():
        if isinstance(module, FractionalLayer):
            layers.replaceable[name] = module
        elif isinstance(module, FractionalMultiheadAttention) or type(module) is nn.MultiheadAttention:
            layers.multihead[name] = module
        elif reason := _refusal(type(module)):  # type: ignore[arg-type] # mypy does not treat classes as hashable
            layers.refused[name] = f"{type(module).__name__} {reason}"
        elif _is_replaceable(type(module)):  # type: ignore[arg-type]
            if head_shape(module) is None:
                layers.refused[name] = f"{type(module).__name__} does not state its number of heads and their width"
            else:
                layers.replaceable[name] = module
    return layers


def head_shape(layer: nn.Module) -> tuple[int, int] | None:
    """Return the number of heads of a layer and the width of their queries, or None if they are unknown."""
    layer_class = layer.timm_class if isinstance(layer, FractionalLayer) else type(layer)
    heads = next((getattr(layer, name) for name in _HEADS if isinstance(getattr(layer, name, None), int)), None)
    if heads is None and class_name(defining_class(layer_class)) in _SINGLE_HEAD:
        heads = 1
    width = next((getattr(layer, name) for name in _WIDTHS if isinstance(getattr(layer, name, None), int)), None)
    scale = getattr(layer, "scale", None)
    if width is None and isinstance(scale, float):
        width = round(scale**-2)
    if width is None and isinstance(qkv := getattr(layer, "qkv", None), nn.Linear) and heads is not None:
        width = qkv.out_features // (3 * heads)
    return None if heads is None or width is None else (heads, width)


@cache
def _refusal(layer_class: type[nn.Module]) -> str | None:
    """Return why FNA cannot replace the attention of a class, or None if it can or there is none."""
    name = class_name(defining_class(layer_class))
    if name in REFUSED:
        return REFUSED[name]
    if name in NO_ATTENTION or name in FORWARDS or _uses(layer_class, SDPA):
        return None
    if issubclass(layer_class, nn.MultiheadAttention):
        return "is a subclass of nn.MultiheadAttention with code of its own"
    return UNKNOWN if _uses(layer_class, "softmax") else None


@cache
def _is_replaceable(layer_class: type[nn.Module]) -> bool:
    return class_name(defining_class(layer_class)) in FORWARDS or _uses(layer_class, SDPA)


def _uses(layer_class: type[nn.Module], function: str) -> bool:
    """Return whether the code of a class, or of a base outside PyTorch, contains the name of a function."""
    return any(
        function in names
        for base in layer_class.__mro__
        if base is not object and not base.__module__.startswith("torch.")
        for member in vars(base).values()
        for names in _names(getattr(inspect.unwrap(member), "__code__", None) if callable(member) else None)
    )


def _names(code: Any) -> Iterator[tuple[str, ...]]:
    """Yield the names that a code object and the functions defined in it use."""
    if isinstance(code, CodeType):
        yield code.co_names
        for constant in code.co_consts:
            yield from _names(constant)
