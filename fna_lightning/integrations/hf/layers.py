"""Attention layers of a transformers model, and the attention cores that compute FNA in them."""

import inspect
from functools import cache
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from fna_lightning.attention import Attention, ExternalAttention
from fna_lightning.integrations.hf.options import refusal, unsupported_option
from fna_lightning.integrations.hf.settings import NAME, Settings

# name of the submodule that computes the attention of a layer
CORE = "fna"


def interface_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model that use transformers' AttentionInterface, by name.

    The prefix of the base model in a model with a head (such as "bert.") is removed, so that both have the same names.
    """
    prefix = getattr(model, "base_model_prefix", "")
    prefix = f"{prefix}." if prefix and hasattr(model, prefix) else ""
    return {
        name.removeprefix(prefix): module
        for name, module in model.named_modules()
        if _uses_interface(type(module))  # type: ignore[arg-type] # mypy does not treat classes as hashable
    }


def refuse_unsupported(model: PreTrainedModel) -> None:
    """Raise if the model, or a model inside it, would ignore ``attn_implementation`` or has an unsupported option."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and not part._can_set_attn_implementation():
            raise ValueError(
                f"{type(part).__name__} computes attention with its own code, not through transformers' "
                "AttentionInterface, so it would ignore FNA; use a model that supports the interface, such as BERT, "
                "GPT-2, Llama, T5, Marian or ViT"
            )
    if not interface_layers(model):
        raise ValueError(
            f"{type(model).__name__} has no attention layer that uses transformers' AttentionInterface, so FNA cannot "
            "replace any; use a model such as BERT, GPT-2, Llama, T5, Marian or ViT"
        )
    refuse_unsupported_options(model)


def refuse_unsupported_options(model: PreTrainedModel) -> None:
    """Raise if an attention layer of the model has an option that FNA does not support."""
    for layer in interface_layers(model).values():
        option = unsupported_option(layer)
        if option is not None:
            raise ValueError(refusal(type(model).__name__, option))


def attach(model: nn.Module, settings: Settings, *, replace: bool = True) -> None:
    """Add an attention core to every attention layer for which the settings have a kappa.

    Without ``replace``, layers that have a core keep it.
    """
    for name, layer in interface_layers(model).items():
        attention = settings.attention(name)
        if attention is not None and (replace or CORE not in layer._modules):
            add_core(layer, attention)


def detach(model: nn.Module) -> None:
    """Remove the attention cores of a model."""
    for layer in interface_layers(model).values():
        layer._modules.pop(CORE, None)


def add_core(layer: nn.Module, attention: Attention) -> ExternalAttention:
    """Add an attention core to one layer and return it."""
    core = ExternalAttention(attention, *_head_shape(layer))
    layer.add_module(CORE, core)
    return core


def core_of(layer: nn.Module) -> ExternalAttention:
    """Return the attention core of a layer.

    It is created on the first call if the model was switched to FNA by ``set_attn_implementation``.
    """
    core = getattr(layer, CORE, None)
    if isinstance(core, ExternalAttention):
        return core
    config = getattr(layer, "config", None)
    settings = Settings.read(config)
    attention = settings.attention(None)
    if attention is None:
        raise RuntimeError(
            f"the configuration has calibrated kappas, but none for this {type(layer).__name__}: the model is not the "
            "one that was calibrated; call fna_lightning.integrations.hf.enable(model, ...) again"
        )
    if config is not None:
        settings.write(config)
    return add_core(layer, attention)


def attach_at_construction(model: PreTrainedModel) -> None:
    """Add attention cores to a new model if it was created with ``attn_implementation="fna"``."""
    if model.config._attn_implementation != NAME:
        return
    if not model._can_set_attn_implementation():
        refuse_unsupported(model)
    refuse_unsupported_options(model)
    settings = Settings.read(model.config)
    settings.write(model.config)
    attach(model, settings)


@cache
def _uses_interface(cls: type[nn.Module]) -> bool:
    """Whether the source of a layer class looks up its attention in transformers' AttentionInterface."""
    try:
        return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(cls.forward)
    except (OSError, TypeError):
        return False


def _head_shape(layer: nn.Module) -> tuple[int, int]:
    """Return the number of query heads and their width, from the layer or its configuration."""
    config = getattr(layer, "config", None)
    heads = _first_integer(layer, config, ("num_heads", "num_attention_heads", "n_heads"))
    width = _first_integer(layer, config, ("head_dim", "attention_head_size", "key_value_proj_dim", "d_kv"))
    return heads, width if width is not None else getattr(config, "hidden_size", 0) // heads


def _first_integer(layer: nn.Module, config: Any, names: tuple[str, ...]) -> Any:
    """Return the first of the named attributes that is an integer; None if only the width is missing."""
    for holder in (layer, config):
        for name in names:
            if isinstance(value := getattr(holder, name, None), int):
                return value
    if names[0] == "num_heads":
        raise ValueError(
            f"{type(layer).__name__} has none of the attributes {', '.join(names)}, so its number of heads is unknown "
            "and FNA cannot be used in it"
        )
    return None
