"""Options of attention layers that change dot-product attention in a way FNA does not support."""

import ast
import inspect
import operator
import textwrap
from functools import cache
from typing import Any

from torch import nn

# Keyword arguments of an attention function, what a layer does that passes them, and what to use instead.
UNSUPPORTED_OPTIONS = {
    "softcap": ("caps the logits of its attention", "a model without logit soft caps, such as Llama or Mistral"),
    "s_aux": ("adds attention sinks to the softmax", "a model without attention sinks, such as Llama or Mistral"),
    "indices": ("attends to selected keys only", "a model without sparse attention, such as Llama or Mistral"),
    "block_indices": ("attends to selected blocks only", "a model without sparse attention, such as Llama or Mistral"),
    "cache": ("reads keys from a paged cache", "generate instead of generate_batch"),
}


def refusal(name: str, option: str) -> str:
    """Return why a model or layer called ``name`` cannot use FNA."""
    effect, alternative = UNSUPPORTED_OPTIONS[option]
    return f"{name} {effect} ({option}), which FNA does not support; use {alternative}"


def unsupported_option(layer: nn.Module) -> str | None:
    """Return the name of an option that the layer passes to its attention function and FNA does not support."""
    for option, value in _options_passed(type(layer)).items():  # type: ignore[arg-type] # see layers.interface_layers
        if _is_set(layer, value):
            return option
    return None


@cache
def _options_passed(cls: type[nn.Module]) -> dict[str, ast.expr]:
    """Return the unsupported options in the source of a layer, with the expression that is passed for each."""
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(cls.forward)))
    except (OSError, TypeError, SyntaxError):
        return {}
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)]
    keywords = [keyword for call in calls if call.func.id.endswith("attention_interface") for keyword in call.keywords]  # type: ignore[attr-defined]
    return {keyword.arg: keyword.value for keyword in keywords if keyword.arg in UNSUPPORTED_OPTIONS}


def _is_set(layer: nn.Module, value: ast.expr) -> bool:
    """Whether the expression is not None: attributes of the layer are looked up, local variables count as set."""
    if isinstance(value, ast.Constant):
        return value.value is not None
    path = ast.unparse(value)
    if not path.startswith("self."):
        return True
    missing: Any = None
    try:
        return operator.attrgetter(path.removeprefix("self."))(layer) is not missing
    except AttributeError:
        return True
