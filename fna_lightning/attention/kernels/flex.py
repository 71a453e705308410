"""Fractional attention on CUDA: PyTorch's FlexAttention with a score_mod that maps a dot product to a power law.

    q' = [-2 q, |q|^2, 1],  k' = [k, 1, |k|^2]        q'.k' = |q - k|^2
    score_mod(s) = -(d_M + alpha) log(1 + sqrt(s) / kappa)

The tokens are first centered on the mean key, and distances below the rounding error of that sum count as 0. bfloat16
has eight bits of mantissa: there each norm takes three coordinates, and the tokens are not centered. FlexAttention
needs head widths of at least 16, so narrower heads are padded with zeros.

Tested: the forward pass, compared with float64 on the CPU, where FlexAttention runs uncompiled. Not tested, because
nothing here has been run on a GPU: the compiled kernel, its backward pass, and its speed compared with ``chunked``.
"""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

from fna_lightning.attention.distance import bfloat16_parts
from fna_lightning.attention.kernels.base import Call, Kernel, Radial, four_axes
from fna_lightning.attention.masks import AttentionMask

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
MIN_WIDTH = 16
# Relative to the norms, |q|^2 + |k|^2 - 2 q.k has a rounding error of a few units in the last place.
ROUNDING = 8 * torch.finfo(torch.float32).eps


class Flex(Kernel):
    """Computes attentions that are a function of the distance, on CUDA."""

    name = "flex"
    portable = False

    def unavailable(self) -> str | None:
        if not torch.cuda.is_available():
            return "it needs a CUDA device (FlexAttention has no backward pass on the CPU)"
        return None

    def refusal(self, call: Call) -> str | None:
        if call.q.device.type != "cuda":
            return f"it runs on CUDA, the tensors are on {call.q.device}"
        if call.attention.density_power:
            return "it does not support density_power"
        if call.mask.bias is not None:
            return "it does not support a bias"
        if call.dropout:
            return f"FlexAttention has no dropout, got {call.dropout}"
        if call.q.dtype not in DTYPES:
            return f"it takes float32, bfloat16 or float16, got {call.q.dtype}"
        radial = call.radial
        if radial is None:
            return f"{call.attention} is not a function of a distance"
        if radial.profile == "student" and radial.sphere:
            return "it computes the profile of Student's t on R^d only"
        if any(isinstance(x, Tensor) and x.requires_grad for x in (radial.kappa, radial.exponent)):
            return "it has no gradient for kappa or alpha"
        return None

    def run(self, call: Call) -> Tensor:
        return attend(call, _compiled())


@cache
def _compiled() -> Callable[..., Tensor]:
    return torch.compile(flex_attention)


def attend(call: Call, flex: Callable[..., Tensor]) -> Tensor:
    """Return the output of the call, computed by ``flex``: FlexAttention, compiled or not."""
    radial = call.radial
    assert radial is not None, "refusal() comes first"
    batch_shape = torch.broadcast_shapes(call.q.shape[:-2], call.k.shape[:-2], call.v.shape[:-2])
    q, k, v = (four_axes(x.expand(*batch_shape, *x.shape[-2:])) for x in (call.q, call.k, call.v))
    # float16 cannot represent the norms of its tokens.
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 and not radial.sphere else torch.float32
    q, k = q.to(dtype), k.to(dtype)
    if radial.sphere:
        q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
    if dtype == torch.float32 and k.size(-2):
        # The attention does not depend on the origin, but the rounding does: no gradient flows here.
        origin = k.detach().mean(dim=-2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
        q, k = q - origin, k - origin
    q_norm, k_norm = (x.float().square().sum(dim=-1, keepdim=True) for x in (q, k))
    q_parts, k_parts = ([x] if dtype == torch.float32 else bfloat16_parts(x) for x in (q_norm, k_norm))
    ones = q.new_ones(())
    q_wide = torch.cat([-2.0 * q, *q_parts, *(ones.expand_as(q_norm) for _ in k_parts)], dim=-1)
    k_wide = torch.cat([k, *(ones.expand_as(k_norm) for _ in q_parts), *k_parts], dim=-1)
    out = flex(
        _widen(q_wide),
        _widen(k_wide),
        _widen(v.to(dtype)),
        score_mod=_score_mod(radial, q_norm.detach().squeeze(-1), k_norm.detach().squeeze(-1)),
        block_mask=_block_mask(call.mask, batch_shape, q, k),
        scale=1.0,
    )
    return out[..., : v.size(-1)].reshape(*batch_shape, q.size(-2), v.size(-1)).to(call.v.dtype)


def _score_mod(radial: Radial, q_norm: Tensor, k_norm: Tensor) -> Callable[..., Tensor]:
    def of_head(value: float | Tensor, head: Tensor) -> float | Tensor:
        return value[head] if isinstance(value, Tensor) and value.dim() else value

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        squared = score.float()
        # Distances that are only rounding error count as 0, with gradient 0, as between a token and itself.
        near = squared <= ROUNDING * (q_norm[batch, head, i] + k_norm[batch, head, j])
        kappa = of_head(radial.kappa, head)
        if radial.profile == "gaussian" and not radial.sphere:
            return -torch.where(near, 0.0, squared) / kappa**2
        if radial.profile == "student":
            return -of_head(radial.exponent, head) * torch.log1p(torch.where(near, 0.0, squared) / kappa**2)
        chord = torch.where(near, 1.0, squared).sqrt()
        distance = 2.0 * torch.asin((0.5 * chord).clamp(max=1.0 - 1e-7)) if radial.sphere else chord
        scaled = torch.where(near, 0.0, distance) / kappa
        if radial.profile == "gaussian":
            return -scaled * scaled
        return -of_head(radial.exponent, head) * torch.log1p(scaled)

    return score_mod


def _block_mask(mask: AttentionMask, batch_shape: torch.Size, q: Tensor, k: Tensor) -> BlockMask | None:
    if mask.allowed is None and not mask.is_causal and not mask.exclude_self:
        return None
    n, m = q.size(-2), k.size(-2)
    matrix = None if mask.allowed is None else four_axes(mask.allowed.expand(*batch_shape, n, m))

    def is_allowed(batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        allowed = j >= 0
        if matrix is not None:
            allowed = allowed & matrix[batch, head, i, j]
        if mask.is_causal:
            allowed = allowed & (j <= i + mask.offset)
        if mask.exclude_self:
            allowed = allowed & (j != i + mask.offset)
        return allowed

    shared = matrix is None
    return create_block_mask(is_allowed, None if shared else q.size(0), None if shared else q.size(1), n, m, q.device)


def _widen(x: Tensor) -> Tensor:
    """Return ``x`` with its last axis padded with zeros to a multiple of ``MIN_WIDTH``."""
    return F.pad(x, (0, -x.size(-1) % MIN_WIDTH))
