"""Fractional neural attention: attention modules and a PyTorch Lightning application that trains and compares them."""

from fna_lightning.attention import attention_weights, available_kernels, fractional_attention

# Must run before lightning and torchmetrics import torchvision; nothing above imports them.
from fna_lightning.utils import torchvision_compat as _torchvision_compat  # noqa: F401
from fna_lightning.version import VERSION

__all__ = ["__version__", "attention_weights", "available_kernels", "fractional_attention"]

__version__ = VERSION
