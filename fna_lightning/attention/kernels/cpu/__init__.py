"""Exact attention on the processor in one pass over the keys, in C: the power law at the price of a dot product.

Weights are never stored: the forward pass keeps two numbers a row, the backward pass computes the weights again.
float16 and bfloat16 are computed in float32. float64 is left to the ``chunked`` kernel.
"""

import torch
from torch import Tensor

from fna_lightning.attention.distance import unit
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.cpu import library as cpu_library
from fna_lightning.attention.kernels.cpu.op import radial_attention

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# below the first the squares of distances leave float32, below the second the rounding of an angle changes a Gaussian
LEAST_KAPPA, LEAST_ANGLE = 1e-12, 1e-2


class Cpu(Kernel):
    """Computes attentions whose kernel is a function of the distance alone."""

    name = "cpu"
    portable = False

    def unavailable(self) -> str | None:
        return cpu_library.missing()

    def refusal(self, call: Call) -> str | None:
        if call.q.device.type != "cpu":
            return f"it runs on the processor, the tensors are on {call.q.device}"
        if call.attention.density_power:
            return "it does not know density_power"
        if call.seen.bias is not None:
            return "it adds no bias to the logits"
        for tensor in (call.q, call.k, call.v):
            if tensor.dtype not in DTYPES:
                return f"it computes in float32, got {tensor.dtype}"
        if not call.q.shape[-1]:
            return "it takes tokens of width 1 at least, got width 0"
        radial = call.radial
        if radial is None:
            return f"{call.attention} is not a function of a distance"
        least = LEAST_ANGLE if radial.gaussian and radial.sphere else LEAST_KAPPA
        if isinstance(radial.kappa, float) and radial.kappa < least:
            return f"float32 does not hold distances in units of a kappa below {least}, got {radial.kappa}"
        return None

    def run(self, call: Call) -> Tensor:
        radial = call.radial
        assert radial is not None, "refusal() comes first"
        q, k, v = call.q.float(), call.k.float(), call.v.float()
        if radial.sphere:
            q, k = unit(q), unit(k)
        lead = q.shape[:-2]
        if not (lead == k.shape[:-2] == v.shape[:-2]):
            lead = torch.broadcast_shapes(lead, k.shape[:-2], v.shape[:-2])
            q, k, v = (x.expand(*lead, *x.shape[-2:]) for x in (q, k, v))
        mask = call.seen.mask
        if len(lead) != 2:
            if mask is not None:
                mask = _two_axes(mask.expand(*lead, q.size(-2), k.size(-2)))
            q, k, v = _two_axes(q), _two_axes(k), _two_axes(v)
        heads = q.size(1)
        seed = None
        if call.dropout:
            seed = torch.randint(2**62, (), dtype=torch.int64)
        out = radial_attention(
            q,
            k,
            v,
            mask,
            _per_head(radial.kappa, heads),
            _per_head(radial.exponent, heads),
            seed,
            radial.gaussian,
            radial.sphere,
            call.seen.is_causal,
            call.seen.exclude_self,
            call.seen.offset,
            call.dropout,
        )
        if len(lead) != 2:
            out = out.reshape(*lead, *out.shape[-2:])
        return out if out.dtype == call.v.dtype else out.to(call.v.dtype)


def _two_axes(x: Tensor) -> Tensor:
    """Return (..., rows, columns) as (batch, head, rows, columns)."""
    while x.dim() < 4:
        x = x[None]
    return x.flatten(0, -4) if x.dim() > 4 else x


def _per_head(value: float | Tensor, heads: int) -> Tensor:
    if isinstance(value, Tensor):
        if value.numel() not in (1, heads):
            raise ValueError(f"this attention has parameters of {value.numel()} heads and was given {heads} heads")
        return value.to(torch.float32).expand(heads).contiguous()
    return torch.full((heads,), value, dtype=torch.float32)
