"""TorchScript and ``torch.fx``: the first is refused in one sentence, for the second a module is one node.

The code of this package decides by shapes and settings, in Python that TorchScript does not compile and a symbolic
trace cannot follow. ``torch.compile`` and ``torch.export`` support it.
"""

from collections.abc import Callable
from typing import Any, NoReturn

from torch import nn
from torch.fx import Proxy, Tracer

__all__ = ["NotScriptable", "Proxy", "as_fx_node", "refuse_script"]


def refuse_script(name: str) -> Callable[[], NoReturn]:
    """Return the function that ``torch.jit.script`` calls before it compiles an object, which raises here."""

    def refuse() -> NoReturn:
        raise RuntimeError(
            f"torch.jit.script cannot compile {name}; use torch.compile, or torch.export.export to save the model "
            "without its Python code"
        )

    return refuse


class NotScriptable:
    """Mixin of modules that ``torch.jit.script`` cannot compile, also inside another module."""

    def __prepare_scriptable__(self) -> NoReturn:
        refuse_script(type(self).__name__)()


def as_fx_node(module: nn.Module, proxy: Proxy, args: tuple[Any, ...], **kwargs: Any) -> Any:
    """Return the call of a module during ``torch.fx.symbolic_trace`` as one node of the graph.

    Raises:
        RuntimeError: if the module itself is traced, because a node must be the call of a submodule.
    """
    tracer = proxy.tracer
    assert isinstance(tracer, Tracer), "symbolic_trace has one"
    name = tracer.path_of_module(module)
    if not name:
        raise RuntimeError(
            f"torch.fx.symbolic_trace cannot trace {type(module).__name__} itself, only a module that contains it; use "
            "torch.export.export or torch.compile"
        )
    return tracer.create_proxy("call_module", name, args, kwargs)
