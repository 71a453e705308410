"""Inputs with grouped heads and a bias, and the formula with both in float64."""

from collections.abc import Callable

import torch
from torch import Tensor

from fna_lightning.attention import Attention

B, H, N, M = 2, 6, 51, 110

# shapes of a bias that broadcasts to (B, H, N, M)
BIAS_SHAPES: dict[str, tuple[int, ...]] = {
    "full": (B, H, N, M),
    "heads": (1, H, N, M),
    "batch": (B, 1, N, M),
    "matrix": (N, M),
    "keys": (M,),
    "keys of heads": (H, 1, M),
    "keys of batch": (B, 1, 1, M),
    "queries": (H, N, 1),
    "number": (),
}


def random_inputs(
    groups: int, d: int = 20, d_v: int = 9, *, n: int = N, m: int = M, dtype: torch.dtype = torch.float32, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return queries with H heads, and keys and values with ``groups`` heads."""
    generator = torch.Generator().manual_seed(seed)
    shapes = ((B, H, n, d), (B, groups, m, d), (B, groups, m, d_v))
    q, k, v = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return q, k, v


def random_bias(shape: tuple[int, ...], scale: float = 2.0, seed: int = 1) -> Tensor:
    return scale * torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def exact(
    attention: Attention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    is_causal: bool = False,
) -> Tensor:
    """Return softmax(log C + bias) v from ``log_kernel``; rows without keys are 0."""
    group = q.size(1) // k.size(1)
    k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    logits = attention.log_kernel(q, k)
    allowed = torch.ones_like(logits, dtype=torch.bool)
    if mask is not None:
        allowed = allowed & mask
    if is_causal:
        allowed = allowed.tril()
    if bias is not None:
        allowed = allowed & (bias > -torch.inf)
    if getattr(attention, "ssmax", False):
        logits = logits * allowed.sum(dim=-1, keepdim=True).clamp_min(1).log()
    if bias is not None:
        logits = logits + bias.masked_fill(bias == -torch.inf, 0.0)
    weights = torch.where(allowed, (logits - logits.amax(dim=-1, keepdim=True).detach()).exp(), 0.0)
    return weights / weights.sum(dim=-1, keepdim=True).clamp_min(1e-300) @ v


def results(compute: Callable[..., Tensor], leaves: list[Tensor], *, upstream_seed: int = 5) -> list[Tensor]:
    """Return the output and the gradients of all inputs; an input that the output does not depend on has gradient 0."""
    leaves = [x.detach().clone().requires_grad_() for x in leaves]
    out = compute(*leaves)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(upstream_seed)).to(out.dtype)
    return [out, *torch.autograd.grad(out, leaves, upstream, materialize_grads=True)]
