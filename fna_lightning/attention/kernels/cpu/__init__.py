"""Exact attention on the CPU in one pass over the keys, written in C.

The power law then costs about as much as dot-product attention. The weights are never stored: the forward pass keeps
two numbers per row, and the backward pass computes the weights again. float16 and bfloat16 are computed in float32;
float64 is left to the ``chunked`` kernel.
"""

import torch
from torch import Tensor

from fna_lightning.attention.distance import unit
from fna_lightning.attention.kernels.base import Call, Kernel, four_axes
from fna_lightning.attention.kernels.cpu import library
from fna_lightning.attention.kernels.cpu.op import radial_attention

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# With a smaller kappa, squared distances in units of kappa overflow float32 (first value), and the rounding error of an
# angle changes the Gaussian (second value).
MIN_KAPPA, MIN_GAUSSIAN_ANGLE = 1e-12, 1e-2


class Cpu(Kernel):
    """Computes attentions that are a function of the distance, on the CPU."""

    name = "cpu"
    portable = False

    def unavailable(self) -> str | None:
        return library.unavailable()

    def refusal(self, call: Call) -> str | None:
        if call.q.device.type != "cpu":
            return f"it runs on the CPU, the tensors are on {call.q.device}"
        if call.attention.density_power:
            return "it does not support density_power"
        if call.mask.bias is not None:
            return "it does not support a bias"
        for tensor in (call.q, call.k, call.v):
            if tensor.dtype not in DTYPES:
                return f"it computes in float32, got {tensor.dtype}"
        if not call.q.shape[-1]:
            return "it needs a head width of at least 1, got 0"
        radial = call.radial
        if radial is None:
            return f"{call.attention} is not a function of a distance"
        if radial.profile == "student" and radial.sphere:
            return "it computes the profile of Student's t on R^d only"
        least = MIN_GAUSSIAN_ANGLE if radial.profile == "gaussian" and radial.sphere else MIN_KAPPA
        if isinstance(radial.kappa, float) and radial.kappa < least:
            return f"kappa must be at least {least} for distances in float32, got {radial.kappa}"
        return None

    def run(self, call: Call) -> Tensor:
        radial = call.radial
        assert radial is not None, "refusal() comes first"
        q, k, v = call.q.float(), call.k.float(), call.v.float()
        if radial.sphere:
            q, k = unit(q), unit(k)
        batch_shape = q.shape[:-2]
        if not (batch_shape == k.shape[:-2] == v.shape[:-2]):
            batch_shape = torch.broadcast_shapes(batch_shape, k.shape[:-2], v.shape[:-2])
            q, k, v = (x.expand(*batch_shape, *x.shape[-2:]) for x in (q, k, v))
        mask = call.mask
        allowed = mask.allowed
        if len(batch_shape) != 2:
            if allowed is not None:
                allowed = four_axes(allowed.expand(*batch_shape, q.size(-2), k.size(-2)))
            q, k, v = four_axes(q), four_axes(k), four_axes(v)
        heads = q.size(1)
        seed = None
        if call.dropout:
            seed = torch.randint(2**62, (), dtype=torch.int64)
        out = radial_attention(
            q,
            k,
            v,
            allowed,
            _per_head(radial.kappa, heads),
            _per_head(radial.exponent, heads),
            seed,
            library.PROFILES[radial.profile],
            radial.sphere,
            mask.is_causal,
            mask.exclude_self,
            mask.offset,
            call.dropout,
        )
        if len(batch_shape) != 2:
            out = out.reshape(*batch_shape, *out.shape[-2:])
        return out if out.dtype == call.v.dtype else out.to(call.v.dtype)


def _per_head(value: float | Tensor, heads: int) -> Tensor:
    if isinstance(value, Tensor):
        if value.numel() not in (1, heads):
            raise ValueError(
                f"this attention has parameters for {value.numel()} heads, the queries have {heads}; create it with "
                f"for_heads({heads})"
            )
        return value.to(torch.float32).expand(heads).contiguous()
    return torch.full((heads,), value, dtype=torch.float32)
