"""Running a timm layer with an attention core in place of its softmax of dot products.

Most layers of timm call ``F.scaled_dot_product_attention``. Inside their forward pass, and only in that thread, this
call goes to the core. ``torch.compile`` and ``torch.export`` trace it. Layers with other code have a forward pass of
their own in ``forwards``.
"""

import math
from collections.abc import Callable
from functools import cache
from typing import Any, ClassVar

from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from fna_lightning.attention import ExternalAttention
from fna_lightning.integrations.timm.forwards import FORWARDS

# name of the submodule that computes the attention of a layer
CORE = "fna"

# (batch, heads, windows, tokens, width) rather than (batch, windows, heads, tokens, width)
_HEADS_BEFORE_WINDOWS = frozenset({"timm.models.hiera.MaskUnitAttention", "timm.models.nest.Attention"})


def class_name(layer_class: type) -> str:
    """Return the full name of a class."""
    return f"{layer_class.__module__}.{layer_class.__qualname__}"


def defining_class(layer_class: type) -> type:
    """Return the class in the inheritance of a layer that defines its forward pass."""
    return next(base for base in layer_class.__mro__ if "forward" in vars(base))


class FractionalLayer(nn.Module):
    """Base of the classes that timm layers get; the core of a layer is its submodule ``fna``."""

    timm_class: ClassVar[type[nn.Module]]
    # whether the layer calls scaled_dot_product_attention; not all layers have this attribute
    fused_attn: bool
    # timm's own value of it, None if the layer has none
    original_fused_attn: bool | None

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Pickle the layer as its timm class, because its own class is created at run time."""
        reduced: Any = super().__reduce_ex__(protocol)
        return _new_layer, (self.timm_class,), *reduced[2:]


def _new_layer(timm_class: type[nn.Module]) -> nn.Module:
    layer_class = fractional_class(timm_class)  # type: ignore[arg-type] # mypy does not treat classes as hashable
    return layer_class.__new__(layer_class)


@cache
def fractional_class(timm_class: type[nn.Module]) -> type[FractionalLayer]:
    """Return the subclass of a timm layer that computes its attention in the core."""
    defined_in = class_name(defining_class(timm_class))
    own_forward = FORWARDS.get(defined_in)
    members = {
        "__module__": __name__,
        "__doc__": f"timm's {timm_class.__name__} with its attention computed by a core.",
        "timm_class": timm_class,
        "forward": own_forward or _intercepted_forward(timm_class, defined_in in _HEADS_BEFORE_WINDOWS),
    }
    return type(f"Fractional{timm_class.__name__}", (FractionalLayer, timm_class), members)


def _intercepted_forward(timm_class: type[nn.Module], heads_before_windows: bool) -> Callable[..., Any]:
    """Return a forward pass that runs timm's own with its attention call redirected to the core."""

    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        redirection = _Redirection(self.get_submodule(CORE), heads_before_windows)
        with redirection:
            out = timm_class.forward(self, *args, **kwargs)
        if redirection.calls != 1:
            raise RuntimeError(
                f"{timm_class.__name__} called scaled_dot_product_attention {redirection.calls} times in a forward "
                "pass instead of once, so its attention was not replaced by FNA; use another model"
            )
        return out

    return forward


class _Redirection(TorchFunctionMode):
    """Sends calls of ``F.scaled_dot_product_attention`` to a core."""

    def __init__(self, core: nn.Module, heads_before_windows: bool) -> None:
        super().__init__()
        self.core = core
        self.heads_before_windows = heads_before_windows
        self.calls = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is F.scaled_dot_product_attention:
            self.calls += 1
            return _attend(self.core, self.heads_before_windows, *args, **(kwargs or {}))
        return func(*args, **(kwargs or {}))


def _attend(
    core: nn.Module,
    heads_before_windows: bool,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the output of the core for a call of ``F.scaled_dot_product_attention``, in the layout of the call."""
    assert isinstance(core, ExternalAttention)
    query, key = with_default_scale(query, key, scale)
    tensors = [query, key, value]
    if query.dim() == 3:
        # The heads are part of the batch axis (SAM).
        tensors = [tensor.unflatten(0, (-1, core.num_heads)) for tensor in tensors]
        attn_mask = None if attn_mask is None else attn_mask.unflatten(0, (-1, core.num_heads))
    elif query.dim() == 5:
        tensors = [(tensor.transpose(1, 2) if heads_before_windows else tensor).flatten(0, 1) for tensor in tensors]
    q, k, v = tensors
    grouped = enable_gqa or q.size(1) != k.size(1)
    out = core(q, k, v, attn_mask, is_causal=is_causal, dropout=dropout_p, enable_gqa=grouped)
    if query.dim() == 3:
        return out.flatten(0, 1)
    if query.dim() == 5:
        out = out.unflatten(0, (query.size(0), -1))
        return out.transpose(1, 2) if heads_before_windows else out
    return out


def with_default_scale(query: Tensor, key: Tensor, scale: float | None) -> tuple[Tensor, Tensor]:
    """Return queries and keys whose dot products with the default scale are those of the given scale.

    The factor is split equally, so that distances between queries and keys keep their meaning.
    """
    width = query.size(-1)
    if scale is None or math.isclose(scale, width**-0.5):
        return query, key
    factor = math.sqrt(scale * math.sqrt(width))
    return query * factor, key * factor


def install(layer: nn.Module, core: ExternalAttention) -> None:
    """Replace the attention of a timm layer by a core; parameters and buffers stay as they are."""
    layer.add_module(CORE, core)
    if isinstance(layer, FractionalLayer):
        return
    fused = getattr(layer, "fused_attn", None)
    layer.__class__ = fractional_class(type(layer))  # type: ignore[arg-type]
    assert isinstance(layer, FractionalLayer)
    layer.original_fused_attn = fused
    if fused is not None:
        # Without it the layer computes the softmax itself.
        layer.fused_attn = True


def uninstall(layer: FractionalLayer) -> None:
    """Restore timm's own attention of a layer."""
    if layer.original_fused_attn is not None:
        layer.fused_attn = layer.original_fused_attn
    del layer.original_fused_attn
    del layer._modules[CORE]
    layer.__class__ = layer.timm_class  # type: ignore[assignment]
