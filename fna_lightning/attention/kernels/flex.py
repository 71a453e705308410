"""Attention by distance on CUDA with PyTorch's FlexAttention; the fall-back where the Triton kernel cannot run.

    s_ij = q_i.k_j                                         FlexAttention, products in IEEE float32
    r_ij^2 = |q_i|^2 + |k_j|^2 - 2 s_ij                    score_mod, with the norms in float32
    log C_ij = -(d_M + alpha) log(1 + r_ij / kappa)        score_mod

float32 tokens are first centered on the mean key; a distance below the rounding error of that sum counts as 0.
bfloat16 and float16 tokens are multiplied as they are.

FlexAttention differentiates a tensor that score_mod reads by one atomic addition per pair of tokens, which is slow and
not deterministic. So score_mod reads constants only. If a gradient is needed, q and k get one more coordinate each,
whose value is 0 and whose gradient is that of the norm (``_with_norm_gradient``). kappa is learned through the tokens:
r / kappa does not change if q, k and kappa are multiplied by one number.

Tested: the forward and the backward pass, compared with float64 on the CPU, where FlexAttention runs uncompiled, and
the number of compilations. Not tested, because nothing here has been run on a GPU: the compiled kernel and its speed.
"""

from collections.abc import Callable
from functools import cache
from inspect import signature
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import flex_attention

from fna_lightning.attention.distance import unit
from fna_lightning.attention.kernels.base import Call, Kernel, Profile
from fna_lightning.attention.kernels.block_mask import block_mask
from fna_lightning.attention.kernels.formula import needs_formula, run_formula, with_all_derivatives

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# FlexAttention needs a width of 16; rows of a multiple of 8 numbers can be loaded 16 bytes at a time.
MIN_WIDTH = 16
WIDTH_MULTIPLE = 8
MAX_WIDTH = 256
# After torch.set_float32_matmul_precision("high") FlexAttention multiplies in TF32 by default, and the squared distance
# cancels. torch/_inductor/kernel/flex/flex_attention.py takes this option for the forward and the backward pass.
PRECISION = {"FLOAT32_PRECISION": "'ieee'"}
# PyTorch's default is 8, which a translator reaches: training, validation and decoding with padding and causal masks.
RECOMPILE_LIMIT = 64
# FlexAttention's default blocks of wider heads do not fit into the shared memory of every GPU. These take at most 64 KB
# (estimate), by the bytes of one row of queries, rounded up to a power of two numbers.
LARGE_ROW_BYTES = 256
SMALL_BLOCKS = {
    512: {"fwd_BLOCK_M": 64, "fwd_BLOCK_N": 32, "bwd_BLOCK_M1": 16, "bwd_BLOCK_N1": 32, "bwd_BLOCK_M2": 32},
    1024: {"fwd_BLOCK_M": 32, "fwd_BLOCK_N": 16, "bwd_BLOCK_M1": 16, "bwd_BLOCK_N1": 16, "bwd_BLOCK_M2": 16},
}


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
        if call.dropout:
            return f"FlexAttention has no dropout, got {call.dropout}"
        if call.q.dtype not in DTYPES:
            return f"it takes float32, bfloat16 or float16, got {call.q.dtype}"
        if not (call.q.numel() and call.k.numel() and call.v.numel()):
            return "it needs at least one query and one key"
        if call.q.size(-1) + 2 > MAX_WIDTH or call.v.size(-1) > MAX_WIDTH:
            return f"it takes widths up to {MAX_WIDTH - 2}, got {call.q.size(-1)} and {call.v.size(-1)}"
        if call.mask.bias is not None and call.mask.bias.requires_grad:
            return "it has no gradient for a bias"
        radial = call.radial
        if radial is None:
            return f"{call.attention} is not a function of a distance"
        if radial.profile == "student" and radial.sphere:
            return "it computes the profile of Student's t on R^d only"
        if _is_learned(radial.exponent):
            return "it has no gradient for alpha"
        if radial.sphere and _is_learned(radial.kappa):
            return "it has no gradient for kappa on the sphere"
        return None

    def run(self, call: Call) -> Tensor:
        if needs_formula():
            return run_formula(call)
        # Inside a compiled model FlexAttention is compiled with it.
        if torch.compiler.is_compiling():
            return attend(call)
        return with_all_derivatives(attend(call, *_compiled()), call, self.name)


@cache
def _compiled() -> tuple[Callable[..., Tensor], Callable[..., tuple[Tensor, ...]]]:
    # Static shapes would be compiled again for every length. Kinds of masks, dtypes, evaluation, a length of 1 and one
    # block of keys are compiled separately; beyond the limit FlexAttention would compute the whole matrix.
    has_limit = "recompile_limit" in signature(torch.compile).parameters
    limit: dict[str, Any] = {"recompile_limit": RECOMPILE_LIMIT} if has_limit else {}
    # Compiled, the preparation reads and writes every token once.
    return torch.compile(flex_by_distance, dynamic=True, **limit), torch.compile(prepare, dynamic=True, **limit)


def attend(
    call: Call,
    function: Callable[..., Tensor] | None = None,
    preparation: Callable[..., tuple[Tensor, ...]] | None = None,
) -> Tensor:
    """Return the output of the call, by ``flex_by_distance`` and ``prepare`` or compiled versions of them."""
    radial = call.radial
    assert radial is not None, "refusal() comes first"
    q, k, v, batch_shape = _aligned(call)
    kappa, exponent = (_per_head(value, q) for value in (radial.kappa, radial.exponent))
    if radial.sphere or _is_learned(radial.kappa):
        # The gradient of kappa is a small sum of large gradients of q and k, which bfloat16 cannot represent.
        q, k = q.float(), k.float()
    if radial.sphere:
        q, k = unit(q), unit(k)
    if _is_learned(radial.kappa):
        q, k, v = _with_kappa_gradient(q, k, v, kappa)
    n, m, width = q.size(-2), k.size(-2), v.size(-1)
    needs_gradient = torch.is_grad_enabled() and (q.requires_grad or k.requires_grad)
    q, k, q_norm, k_norm = (preparation or prepare)(q, k, needs_gradient)
    out = (function or flex_by_distance)(
        q,
        k,
        _widen(v.to(q.dtype)),
        (q_norm, k_norm),
        kappa.detach(),
        exponent,
        _four_axes_of_bias(call.mask.bias, batch_shape),
        block_mask(call.mask, batch_shape, n, m, q.device),
        radial.profile,
        radial.sphere,
    )
    return out[..., :width].reshape(*batch_shape, n, width).to(call.v.dtype)


def flex_by_distance(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    norms: tuple[Tensor, Tensor],
    kappa: Tensor,
    exponent: Tensor,
    bias: Tensor | None,
    mask: Any,
    profile: Profile,
    sphere: bool,
) -> Tensor:
    """Return the output for (B, H, N, D) queries, (B, G, M, D) keys and (B, G, M, D_v) values, with G dividing H."""
    out = flex_attention(
        q,
        k,
        v,
        score_mod=score_mod_of(profile, sphere, kappa, exponent, *norms, bias),
        block_mask=mask,
        scale=1.0,
        enable_gqa=q.size(1) != k.size(1),
        kernel_options=kernel_options(max(q.size(-1), v.size(-1)), q.element_size()),
    )
    assert isinstance(out, Tensor)
    return out


def prepare(q: Tensor, k: Tensor, needs_gradient: bool) -> tuple[Tensor, ...]:
    """Return the queries and keys to multiply, and their squared norms for each query head, without a gradient."""
    group = q.size(1) // k.size(1)
    if q.dtype == torch.float32:
        # The attention does not depend on the origin, but the rounding does: no gradient flows here. A key that is not
        # finite must not move the other keys.
        origin = k.detach().mean(dim=-2, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
        q, k = q - _repeated(origin, group), k - origin
    q_norm, k_norm = (x.float().square().sum(dim=-1) for x in (q, k))
    if needs_gradient:
        q, k = _with_norm_gradient(q, k, q_norm, k_norm)
    return _widen(q), _widen(k), q_norm.detach(), _repeated(k_norm.detach(), group)


def _repeated(x: Tensor, group: int) -> Tensor:
    """Return values of key heads for the query heads."""
    return x if group == 1 else x.repeat_interleave(group, dim=1)


def kernel_options(width: int, element_size: int) -> Any:
    """Return FlexAttention's options for tokens of ``width`` numbers of ``element_size`` bytes."""
    row_bytes = (1 << (width - 1).bit_length()) * element_size
    if row_bytes <= LARGE_ROW_BYTES:
        return dict(PRECISION)
    blocks = SMALL_BLOCKS[row_bytes]
    return {**PRECISION, **blocks, "bwd_BLOCK_N2": blocks["bwd_BLOCK_M1"], "num_stages": 1}


def score_mod_of(
    profile: Profile,
    sphere: bool,
    kappa: Tensor,
    exponent: Tensor,
    q_norm: Tensor,
    k_norm: Tensor,
    bias: Tensor | None,
) -> Callable[..., Tensor]:
    """Return FlexAttention's function of a dot product; it reads only tensors without gradient."""
    bias_axes = () if bias is None else tuple(size > 1 for size in bias.shape)
    compact_bias = None if bias is None else bias.squeeze()

    def log_kernel(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        norms = q_norm[batch, head, i] + k_norm[batch, head, j]
        squared = norms - 2.0 * score.float()
        # The sum has a rounding error of a few units in the last place of the norms. (A constant of the module would
        # become an input of the compiled function, which FlexAttention does not accept.)
        rounding = 8 * torch.finfo(torch.float32).eps
        # Distances that are only rounding error count as 0, with gradient 0, as between a token and itself.
        near = squared <= rounding * norms
        scale = kappa[head]
        if profile == "gaussian" and not sphere:
            return -torch.where(near, 0.0, squared) / (scale * scale)
        if profile == "student":
            return -exponent[head] * torch.log1p(torch.where(near, 0.0, squared) / (scale * scale))
        chord = torch.where(near, 1.0, squared).sqrt()
        distance = 2.0 * torch.asin((0.5 * chord).clamp(max=1.0 - 1e-7)) if sphere else chord
        scaled = torch.where(near, 0.0, distance) / scale
        if profile == "gaussian":
            return -scaled * scaled
        return -exponent[head] * torch.log1p(scaled)

    def score_mod(score: Tensor, batch: Tensor, head: Tensor, i: Tensor, j: Tensor) -> Tensor:
        logit = log_kernel(score, batch, head, i, j)
        if compact_bias is None:
            return logit
        index = tuple(axis for axis, used in zip((batch, head, i, j), bias_axes, strict=True) if used)
        return logit + (compact_bias[index] if index else compact_bias)

    return score_mod


def _with_norm_gradient(q: Tensor, k: Tensor, q_norm: Tensor, k_norm: Tensor) -> tuple[Tensor, Tensor]:
    """Return q and k with two more coordinates, [a, 1] and [1, b], that add 0 to the dot product.

    a = -(|q|^2 - |q|^2) / 2 with no gradient in the second norm, so that r^2 = |q|^2 + |k|^2 - 2 q.k, in which
    score_mod takes the norms as constants, gets their gradient through the dot product. b likewise.
    """
    zeros = [(0.5 * (norm.detach() - norm))[..., None] for norm in (q_norm, k_norm)]
    q_zero, k_zero = (zero.to(q.dtype) for zero in zeros)
    return torch.cat([q, q_zero, torch.ones_like(q_zero)], dim=-1), torch.cat([k, torch.ones_like(k_zero), k_zero], -1)


def _with_kappa_gradient(q: Tensor, k: Tensor, v: Tensor, kappa: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return q and k times kappa / kappa, which is 1, with a gradient in the denominator only.

    |q - k| / kappa with a constant kappa then has the gradient with respect to kappa. Grouped keys are repeated,
    because each query head has its own kappa.
    """
    group = q.size(1) // k.size(1)
    if group > 1:
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
    factor = (kappa.detach() / kappa)[:, None, None]
    return q * factor, k * factor, v


def _aligned(call: Call) -> tuple[Tensor, Tensor, Tensor, tuple[int, ...]]:
    """Return queries, keys and values with four axes and all batch axes, and the batch shape of the output.

    Keys and values may have fewer heads than the queries.
    """
    tensors = [x if x.dim() > 2 else x[None] for x in (call.q, call.k, call.v)]
    leading = torch.broadcast_shapes(*(x.shape[:-3] for x in tensors))
    heads, key_heads, value_heads = (x.size(-3) for x in tensors)
    key_heads = value_heads = max(key_heads, value_heads)
    heads = max(heads, key_heads)
    q, k, v = (
        x.expand(*leading, count, *x.shape[-2:]).reshape(-1, count, *x.shape[-2:])
        for x, count in zip(tensors, (heads, key_heads, value_heads), strict=True)
    )
    shape = (*leading, heads)
    has_heads = max(x.dim() for x in (call.q, call.k, call.v)) > 2
    return q, k, v, shape if has_heads else ()


def _four_axes_of_bias(bias: Tensor | None, batch_shape: tuple[int, ...]) -> Tensor | None:
    """Return the bias as (B or 1, H or 1, N or 1, M or 1) in float32."""
    if bias is None:
        return None
    if bias.dim() > 4:
        bias = bias.expand(*batch_shape[:-1], *bias.shape[-3:]).flatten(0, -4)
    return bias.reshape(*[1] * (4 - bias.dim()), *bias.shape).float()


def _per_head(value: float | Tensor, q: Tensor) -> Tensor:
    """Return a value of the attention as (H,) in float32."""
    if not isinstance(value, Tensor):
        # A tensor: FlexAttention would be compiled again for every other number.
        return torch.full((q.size(1),), value, device=q.device, dtype=torch.float32)
    return value.float().expand(q.size(1))


def _is_learned(value: float | Tensor) -> bool:
    return isinstance(value, Tensor) and value.requires_grad


def _widen(x: Tensor) -> Tensor:
    """Return ``x`` with its last axis padded with zeros to a width that suits FlexAttention."""
    width = max(MIN_WIDTH, -(-x.size(-1) // WIDTH_MULTIPLE) * WIDTH_MULTIPLE)
    return F.pad(x, (0, width - x.size(-1)))
