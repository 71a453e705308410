"""PyTorch's fused attention for every kernel that can be written as a dot product.

That is dot-product attention itself, uniform attention, and the Gaussian (alpha = 2) through one more coordinate.
Forward and backward then run in the flash or memory-efficient kernels, without an (n, m) matrix.
"""

from contextlib import nullcontext

import torch
from torch import Tensor
from torch.nn import functional as F

from fna_lightning.attention.autocast import with_autocast_type
from fna_lightning.attention.kappa import computed_in
from fna_lightning.attention.kernels.base import Call, Kernel


class Sdpa(Kernel):
    """Hands an attention's dot-product form to ``scaled_dot_product_attention``."""

    name = "sdpa"

    def refusal(self, call: Call) -> str | None:
        if call.attention.density_power:
            return "it does not know density_power"
        if call.seen.bias is not None:
            return "it adds no bias to the logits"
        # zero-width views: the form exists or not whatever the numbers are
        if call.attention.as_dot_product(call.q[..., :0, :], call.k[..., :0, :]) is None:
            return f"{call.attention} is not a dot product in disguise (only alpha = 2 on R^d is)"
        return None

    def run(self, call: Call) -> Tensor:
        form = call.attention.as_dot_product(call.q, call.k)
        assert form is not None, "refusal() comes first"
        q, k, scale = form
        seen, mask = call.seen, None
        causal = seen.is_causal and seen.mask is None and not seen.exclude_self and seen.offset == 0
        if not causal:
            mask = seen.matrix(q.size(-2), k.size(-2), q.device)
        v = call.v.to(q.dtype)
        if q.size(-1) != v.size(-1):
            # the fused kernels want one width, or they fall back to an (n, m) matrix; on a multiple of 16 they are
            # twice as fast as on 33
            width = -(-max(q.size(-1), v.size(-1)) // 16) * 16
            q, k, v = (F.pad(x, (0, width - x.size(-1))) for x in (q, k, v))
        if mask is not None:
            # SDPA wants the batch axes of a mask spelled out
            mask = mask.expand(*[1] * (q.dim() - mask.dim()), *mask.shape)
        # autocast would round the coordinates the form has added, and the norms among them leave the range of float16
        with nullcontext() if q is call.q else with_autocast_type(None, q.device):
            out = F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal, dropout_p=call.dropout, scale=scale
            )
        out = out[..., : call.v.size(-1)].to(call.v.dtype)
        if mask is None and q.device.type == "cpu" and not torch.compiler.is_exporting():
            # without a mask PyTorch's kernel for the processor returns 0 for a query that is not finite, not NaN
            out = out + (0.0 * call.q.detach().sum(dim=-1, keepdim=True, dtype=computed_in(q))).to(out.dtype)
        return out
