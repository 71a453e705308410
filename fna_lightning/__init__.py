"""Fractional neural attention: a library of attentions and a PyTorch Lightning application around it."""

from fna_lightning.attention import attention_weights, available_kernels, fractional_attention
from fna_lightning.utils import torchvision_compat as _torchvision  # noqa: F401 - first: lightning and torchmetrics import torchvision
from fna_lightning.version import VERSION

__all__ = ["__version__", "attention_weights", "available_kernels", "fractional_attention"]

__version__ = VERSION
