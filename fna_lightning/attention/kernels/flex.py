"""Fractional attention on CUDA: PyTorch's FlexAttention, whose score is turned from a dot product into a power law.

    q' = [-2 q, |q|^2, 1],  k' = [k, 1, |k|^2]        q'.k' = |q - k|^2
    score_mod(s) = -(d_M + alpha) log(1 + sqrt(s) / kappa)

The tokens are centred on the mean key before, and distances below the rounding of that sum count as 0. bfloat16 has
eight bits of mantissa, so there the norms are carried by three coordinates each, and the tokens stay as they are.
FlexAttention wants head widths of 16 at least: narrower ones are padded with zeros.

What is tested and what is not: the forward pass is compared with the float64 truth on the processor, where
FlexAttention runs uncompiled. Nothing here has been run or timed on a GPU: neither the compiled kernel, nor its
backward pass, nor that it is faster than ``chunked`` there.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.masks import AttentionMask
from fna_lightning.attention.radial import Radial

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
LEAST_WIDTH = 16
# |q|^2 + |k|^2 - 2 q.k is wrong by some units in the last place of the norms
ROUNDING = 8 * torch.finfo(torch.float32).eps


class Flex(Kernel):
    """Computes attentions whose kernel is a function of the distance alone, on CUDA."""

    name = "flex"
    portable = False

    def unavailable(self) -> str | None:
        if not torch.cuda.is_available():
            return "it needs a CUDA device (on the processor FlexAttention has no backward pass)"
        return None

    def refusal(self, call: Call) -> str | None:
        if call.q.device.type != "cuda":
            return f"it runs on CUDA, the tensors are on {call.q.device}"
        if call.attention.density_power:
            return "it does not know density_power"
        if call.seen.bias is not None:
            return "it adds no bias to the logits"
        if call.dropout:
            return f"FlexAttention has no dropout, got {call.dropout}"
        if call.q.dtype not in DTYPES:
            return f"it computes in float32 or bfloat16, got {call.q.dtype}"
        radial = call.radial
        if radial is None:
            return f"{call.attention} is not a function of a distance"
        if any(isinstance(x, Tensor) and x.requires_grad for x in (radial.kappa, radial.exponent)):
            return "it does not differentiate by kappa or alpha"
        return None

    def run(self, call: Call) -> Tensor:
        return attend(call, _compiled())


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)


def attend(call: Call, flex: Callable[..., Tensor]) -> Tensor:
    """Return the output of the call by ``flex``: FlexAttention, compiled or not."""
    radial = call.radial
    assert radial is not None, "refusal() comes first"
    lead = torch.broadcast_shapes(call.q.shape[:-2], call.k.shape[:-2], call.v.shape[:-2])
    q, k, v = (_four_axes(x.expand(*lead, *x.shape[-2:])) for x in (call.q, call.k, call.v))
    # the norms of float16 tokens leave its range
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 and not radial.sphere else torch.float32
    q, k = q.to(dtype), k.to(dtype)
    if radial.sphere:
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    if dtype == torch.float32 and k.size(-2):
        # the attention does not depend on the origin, the rounding does; so no gradient flows here
        origin = k.detach().mean(dim=-2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
        q, k = q - origin, k - origin
    q_norm, k_norm = (x.float().square().sum(dim=-1, keepdim=True) for x in (q, k))
    q_parts, k_parts = _parts(q_norm, dtype), _parts(k_norm, dtype)
    ones = q.new_ones(())
    q_wide = torch.cat([-2.0 * q, *q_parts, *(ones.expand_as(q_norm) for _ in k_parts)], dim=-1)
    k_wide = torch.cat([k, *(ones.expand_as(k_norm) for _ in q_parts), *k_parts], dim=-1)
    out = flex(
        _widen(q_wide),
        _widen(k_wide),
        _widen(v.to(dtype)),
        score_mod=_score_mod(radial, q_norm.detach().squeeze(-1), k_norm.detach().squeeze(-1)),
        block_mask=_block_mask(call.seen, lead, q, k),
        scale=1.0,
    )
    return out[..., : v.size(-1)].reshape(*lead, q.size(-2), v.size(-1)).to(call.v.dtype)


def _score_mod(radial: Radial, q_norm: Tensor, k_norm: Tensor) -> Callable[..., Tensor]:
    def of_head(value: float | Tensor, head: Tensor) -> float | Tensor:
        return value[head] if isinstance(value, Tensor) and value.dim() else value

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        squared = score.float()
        # one branch for all that is nothing but rounding; its gradient is 0, as that of a token at itself
        near = squared <= ROUNDING * (q_norm[batch, head, i] + k_norm[batch, head, j])
        kappa = of_head(radial.kappa, head)
        if radial.gaussian and not radial.sphere:
            return -torch.where(near, 0.0, squared) / kappa**2
        chord = torch.where(near, 1.0, squared).sqrt()
        distance = 2.0 * torch.asin((0.5 * chord).clamp(max=1.0 - 1e-7)) if radial.sphere else chord
        hops = torch.where(near, 0.0, distance) / kappa
        return -hops * hops if radial.gaussian else -of_head(radial.exponent, head) * torch.log1p(hops)

    return score_mod


def _block_mask(seen: AttentionMask, lead: torch.Size, q: Tensor, k: Tensor) -> BlockMask | None:
    if seen.mask is None and not seen.is_causal and not seen.exclude_self:
        return None
    n, m = q.size(-2), k.size(-2)
    mask = None if seen.mask is None else _four_axes(seen.mask.expand(*lead, n, m))

    def visible(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = j >= 0
        if mask is not None:
            allowed = allowed & mask[batch, head, i, j]
        if seen.is_causal:
            allowed = allowed & (j <= i + seen.offset)
        if seen.exclude_self:
            allowed = allowed & (j != i + seen.offset)
        return allowed

    shared = mask is None
    return create_block_mask(visible, None if shared else q.size(0), None if shared else q.size(1), n, m, q.device)


def _parts(norms: Tensor, dtype: torch.dtype) -> list[Tensor]:
    """Return coordinates of ``dtype`` whose sum is ``norms``."""
    if dtype == torch.float32:
        return [norms]
    parts = []
    for _ in range(3):
        parts.append(norms.to(dtype))
        norms = norms - parts[-1].float()
    return parts


def _widen(x: Tensor) -> Tensor:
    """Pad the last axis with zeros to a multiple of the least width."""
    return F.pad(x, (0, -x.size(-1) % LEAST_WIDTH))


def _four_axes(x: Tensor) -> Tensor:
    while x.dim() < 4:
        x = x[None]
    return x.flatten(0, -4) if x.dim() > 4 else x
