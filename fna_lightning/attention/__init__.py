"""Attentions (one file each), multi-head attention, and the kernels that compute them."""

from fna_lightning.attention.base import Attention
from fna_lightning.attention.dot_product import DotProduct
from fna_lightning.attention.external import ExternalAttention
from fna_lightning.attention.fractional import Fractional
from fna_lightning.attention.functional import attention_weights, fractional_attention
from fna_lightning.attention.intrinsic_dim import estimate_intrinsic_dim
from fna_lightning.attention.kernels import available_kernels
from fna_lightning.attention.multihead import KeyValueCache, MultiheadAttention
from fna_lightning.attention.projections import LinearProjection, OrthogonalProjection, Projection
from fna_lightning.attention.spherical import Spherical
from fna_lightning.attention.student_t import StudentT
from fna_lightning.attention.torch_multihead import FractionalMultiheadAttention
from fna_lightning.attention.uniform import Uniform

__all__ = [
    "Attention",
    "DotProduct",
    "ExternalAttention",
    "Fractional",
    "FractionalMultiheadAttention",
    "KeyValueCache",
    "LinearProjection",
    "MultiheadAttention",
    "OrthogonalProjection",
    "Projection",
    "Spherical",
    "StudentT",
    "Uniform",
    "attention_weights",
    "available_kernels",
    "estimate_intrinsic_dim",
    "fractional_attention",
]
