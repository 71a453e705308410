"""The attention layers of a transformers model, and the sites where ours meets their queries and keys."""

import inspect
from functools import cache
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from fna_lightning.attention import Attention, ExternalAttention
from fna_lightning.integrations.hf.settings import NAME, Settings

SITE = "fna"


def interface_layers(model: nn.Module) -> dict[str, nn.Module]:
    """Return the modules of a model that leave attention to transformers' interface, by name.

    The prefix of the model inside a model with a head ("bert.") is left out: the names are the same for both.
    """
    prefix = getattr(model, "base_model_prefix", "")
    prefix = f"{prefix}." if prefix and hasattr(model, prefix) else ""
    return {
        name.removeprefix(prefix): module
        for name, module in model.named_modules()
        if _uses_interface(type(module))  # type: ignore[arg-type] # mypy takes no class for hashable
    }


def refuse_unsupported(model: PreTrainedModel) -> None:
    """Raise if the model, or a model inside it, would ignore the setting."""
    for part in model.modules():
        if isinstance(part, PreTrainedModel) and not part._can_set_attn_implementation():
            raise ValueError(
                f"{type(part).__name__} computes attention by code of its own, not through transformers' "
                "AttentionInterface: it would go on without FNA. Use a model that follows the interface, such as BERT, "
                "GPT-2, Llama, T5, Marian or ViT"
            )
    if not interface_layers(model):
        raise ValueError(
            f"{type(model).__name__} has no attention layer that uses transformers' AttentionInterface; there is "
            "nothing FNA could replace"
        )


def attach(model: nn.Module, settings: Settings) -> None:
    """Give every attention layer of the model its site; a layer the settings do not know is left as it is."""
    for name, host in interface_layers(model).items():
        attention = settings.attention(name)
        if attention is not None:
            put_site(host, attention)


def put_site(host: nn.Module, attention: Attention) -> ExternalAttention:
    """Put the attention into one layer."""
    site = ExternalAttention(attention, *_shape(host))
    host.add_module(SITE, site)
    return site


def site_of(host: nn.Module) -> ExternalAttention:
    """Return the site of a layer; made on the first call if transformers' own means switched the model to FNA."""
    site = getattr(host, SITE, None)
    if isinstance(site, ExternalAttention):
        return site
    config = getattr(host, "config", None)
    settings = Settings.read(config)
    attention = settings.attention(None)
    if attention is None:
        raise RuntimeError(
            f"the configuration has calibrated kappas, but not for this {type(host).__name__}: the model is of another "
            "kind than the one that was calibrated; call fna_lightning.integrations.hf.enable(model, ...) again"
        )
    if config is not None:
        settings.write(config)
    return put_site(host, attention)


def attach_at_construction(model: PreTrainedModel) -> None:
    """Give a model that was just made with ``attn_implementation="fna"`` the attention its configuration describes."""
    if model.config._attn_implementation != NAME:
        return
    if not model._can_set_attn_implementation():
        refuse_unsupported(model)
    settings = Settings.read(model.config)
    settings.write(model.config)
    attach(model, settings)


@cache
def _uses_interface(kind: type[nn.Module]) -> bool:
    try:
        return "ALL_ATTENTION_FUNCTIONS" in inspect.getsource(kind.forward)
    except (OSError, TypeError):
        return False


def _shape(host: nn.Module) -> tuple[int, int]:
    """Return the number of query heads and their width, as the layer or its configuration calls them."""
    config = getattr(host, "config", None)
    heads = _first(host, config, ("num_heads", "num_attention_heads", "n_heads"))
    width = _first(host, config, ("head_dim", "attention_head_size", "key_value_proj_dim", "d_kv"))
    return heads, width if width is not None else getattr(config, "hidden_size", 0) // heads


def _first(host: nn.Module, config: Any, names: tuple[str, ...]) -> Any:
    for holder in (host, config):
        for name in names:
            if isinstance(found := getattr(holder, name, None), int):
                return found
    if names[0] == "num_heads":
        raise ValueError(f"{type(host).__name__} does not say how many heads it has; FNA cannot be put there")
    return None
