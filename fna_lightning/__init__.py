"""Fractional neural attention: attention modules and a PyTorch Lightning application that trains and compares them."""

import importlib
from typing import TYPE_CHECKING, Any

from fna_lightning.utils.torchvision_compat import declare_operators_on_import
from fna_lightning.version import VERSION

if TYPE_CHECKING:
    from fna_lightning.attention import attention_weights, available_kernels, fractional_attention
    from fna_lightning.integrations.enable import enable

__all__ = ["__version__", "attention_weights", "available_kernels", "enable", "fractional_attention"]

__version__ = VERSION

# Lightning and torchmetrics import torchvision.
declare_operators_on_import()


def __getattr__(name: str) -> Any:
    """Import the package of a public name when it is first used, because PyTorch takes seconds to import."""
    if name != "attention" and name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(f"{__name__}.integrations.enable" if name == "enable" else f"{__name__}.attention")
    if name == "attention":
        return module
    globals()[name] = getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
