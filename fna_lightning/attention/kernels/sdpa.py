"""PyTorch's fused attention, for every attention that can be written as a dot product.

These are dot-product attention itself, uniform attention, and the Gaussian (alpha = 2) with one more coordinate.
Forward and backward pass then run in the flash or memory-efficient kernels, without an (n, m) matrix.
"""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from fna_lightning.attention.autocast import with_autocast_type
from fna_lightning.attention.distance import distance_dtype
from fna_lightning.attention.inputs import repeat_heads
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.formula import needs_formula, run_formula, with_all_derivatives
from fna_lightning.attention.transforms import is_exporting


class Sdpa(Kernel):
    """Computes the dot-product form of an attention with ``scaled_dot_product_attention``."""

    name = "sdpa"
    grouped = True

    def refusal(self, call: Call) -> str | None:
        if call.attention.density_power:
            return "it does not support density_power"
        form, bias = call.dot_product, call.mask.bias
        if form is None:
            return f"{call.attention} cannot be written as a dot product (Fractional can only with alpha = 2 on R^d)"
        if bias is not None and torch.promote_types(bias.dtype, form[0].dtype) != form[0].dtype:
            return f"it would round a bias of {bias.dtype} to {form[0].dtype}"
        return None

    def run(self, call: Call) -> Tensor:
        if needs_formula():
            return run_formula(call)
        form = call.dot_product
        assert form is not None, "refusal() comes first"
        q, k, scale = form
        factors = call.attention.row_factors(call.q, call.k, call.mask)
        if factors is not None:
            q = (q * factors).to(q.dtype)
        mask, matrix = call.mask, None
        causal = mask.is_causal and mask.allowed is None and not mask.exclude_self and mask.offset == 0
        causal = causal and mask.bias is None
        if not causal:
            matrix = mask.matrix(q.size(-2), k.size(-2), q.device)
        if mask.bias is not None:
            bias = mask.bias.to(q.dtype)
            matrix = bias if matrix is None else torch.where(matrix, bias, -torch.inf)
        v = call.v.to(q.dtype)
        grouped = call.group_size > 1
        if grouped and not _has_grouped_kernel(q, matrix):
            k, v, grouped = repeat_heads(k, call.group_size), repeat_heads(v, call.group_size), False
        if q.size(-1) != v.size(-1):
            # The fused kernels need equal widths, otherwise PyTorch builds an (n, m) matrix. With a multiple of 16 they
            # are twice as fast as with 33.
            width = -(-max(q.size(-1), v.size(-1)) // 16) * 16
            q, k, v = (F.pad(x, (0, width - x.size(-1))) for x in (q, k, v))
        if matrix is not None:
            # SDPA needs all batch axes of a mask.
            matrix = matrix.expand(*[1] * (q.dim() - matrix.dim()), *matrix.shape)
        # Autocast would round the added coordinates, and float16 cannot represent the norms among them.
        with nullcontext() if q is call.q else with_autocast_type(None, q.device):
            out = F.scaled_dot_product_attention(
                q,
                k,
                v,
                attn_mask=matrix,
                is_causal=causal,
                dropout_p=call.dropout,
                scale=scale,
                enable_gqa=grouped,
            )
        out = out[..., : call.v.size(-1)].to(call.v.dtype)
        if matrix is None and q.device.type == "cpu" and not is_exporting():
            # Without a mask, PyTorch's CPU kernel returns 0 instead of NaN for a query that is not finite.
            out = out + (0.0 * call.q.detach().sum(dim=-1, keepdim=True, dtype=distance_dtype(q))).to(out.dtype)
        return with_all_derivatives(out, call, self.name)


def _has_grouped_kernel(q: Tensor, matrix: Tensor | None) -> bool:
    """Return whether a fused kernel of PyTorch computes grouped heads; without one, it builds an (n, m) matrix."""
    if q.dim() != 4:
        return False
    return q.device.type == "cpu" or (matrix is None and q.dtype in (torch.float16, torch.bfloat16))
