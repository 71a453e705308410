"""kappa, the distance scale of the kernel: a positive number, one number per head, or a rule of the paper.

A rule is a function of the head width d_H and the intrinsic dimension d_M, with one form for the power law (alpha < 2)
and one for the Gaussian (alpha = 2).
"""

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from fna_lightning.attention.distance import distance_dtype
from fna_lightning.attention.inputs import count_heads
from fna_lightning.attention.learned import refuse_tensor

Rule = Callable[[int, float | Tensor], float | Tensor]
POWER_LAW_RULES: dict[str, Rule] = {
    "text": lambda head_dim, _: math.sqrt(head_dim) / (2.0 ** (1.0 / head_dim) - 1.0),
    "vision": lambda head_dim, _: float(head_dim),
    "sphere": lambda _, intrinsic_dim: math.pi / (math.pi ** (1.0 / intrinsic_dim) - 1.0),
}
GAUSSIAN_RULES: dict[str, Rule] = {
    "text": lambda head_dim, _: math.sqrt(head_dim),
    "vision": lambda head_dim, _: math.sqrt(head_dim),
    "sphere": lambda _, __: 1.0,
}


Kappa = float | str | Sequence[float]


def check_kappa(kappa: Kappa) -> None:
    """Raise unless ``kappa`` is a positive number, a list with one number per head, or the name of a rule."""
    refuse_tensor("kappa", kappa, "pass learn=['kappa'] to learn it, or call fractional_attention with the tensor")
    if isinstance(kappa, Sequence) and not isinstance(kappa, str):
        if not kappa:
            raise ValueError("kappa must have one number for each head, got none; give a number for all heads")
        for head_kappa in kappa:
            check_kappa(head_kappa if isinstance(head_kappa, Tensor) else float(head_kappa))
    elif isinstance(kappa, str):
        if kappa != "auto" and kappa not in POWER_LAW_RULES:
            raise ValueError(
                f"unknown kappa rule {kappa!r}; give a positive number or one of auto, {', '.join(POWER_LAW_RULES)}"
            )
    elif not (kappa > 0.0 and math.isfinite(kappa)):
        raise ValueError(
            f"kappa must be positive and finite, got {kappa}; give a positive number or one of auto, "
            f"{', '.join(POWER_LAW_RULES)}"
        )


def resolve_kappa(rule: str, *, gaussian: bool, head_dim: int, intrinsic_dim: float | Tensor) -> float | Tensor:
    """Return kappa by a rule; a tensor if the rule depends on an estimated intrinsic dimension."""
    return (GAUSSIAN_RULES if gaussian else POWER_LAW_RULES)[rule](head_dim, intrinsic_dim)


def kappa_per_head(kappa: Sequence[float], q: Tensor) -> Tensor:
    """Return one kappa per head as a tensor in the dtype of the distances of these queries."""
    heads = count_heads(q)
    if len(kappa) not in (1, heads):
        raise ValueError(f"kappa has {len(kappa)} numbers for {heads} heads; give one for each head, or one for all")
    # torch.compile traces the construction and warns about an lru_cache, and a fake tensor must not be kept.
    cached = type(q) is Tensor and not torch.compiler.is_compiling()
    build = _cached_head_tensor if cached else _head_tensor
    return build(tuple(kappa), distance_dtype(q), q.device)


def _head_tensor(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values, dtype=dtype, device=device)


@lru_cache(maxsize=64)
def _cached_head_tensor(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    # Copying the values to a GPU on every call would wait for it. An inference tensor could not be used in training.
    with torch.inference_mode(False):
        return _head_tensor(values, dtype, device)
