"""Cross entropy of a large vocabulary with label smoothing, without ever holding all its scores.

The scores of a few thousand tokens over a few thousand words are larger than everything else in a training step, and
several passes over them take most of its time. Here a block of tokens is scored, turned into its gradient in place and
forgotten while it still is in the processor's cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fna_lightning.attention.autocast import autocast_type, with_autocast_type

# tokens scored at once
BLOCK = 256


def linear_cross_entropy(
    features: Tensor, weight: Tensor, target: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor]:
    """Return the mean loss with label smoothing and, without gradient, the mean without it.

    Args:
        features: (T, D) vectors.
        weight: (V, D); a token's scores are its products with the rows.
        target: (T,) right answers.
        smoothing: share of the answer's probability that is spread over all V, as in ``F.cross_entropy``.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"label smoothing must lie in [0, 1), got {smoothing}")
    loss, plain = _SmoothedLoss.apply(features, weight, target, smoothing)
    return loss, plain


class _SmoothedLoss(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, features: Tensor, weight: Tensor, target: Tensor, smoothing: float) -> tuple[Tensor, Tensor]:
        wanted = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        device, count, size = features.device, len(target), len(weight)
        # autocast's rules for single operators are of no use here: products are taken in its number type, all the rest
        # is computed and summed in float32 at least
        rounded = autocast_type(device) or features.dtype
        exact = torch.promote_types(features.dtype, torch.float32)
        grad_features = torch.empty_like(features, dtype=exact) if wanted else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if wanted else None
        total, plain = features.new_zeros((), dtype=torch.float64), features.new_zeros((), dtype=torch.float64)
        with with_autocast_type(None, device):
            table = weight.to(rounded)
            for start in range(0, count, BLOCK):
                x, y = features[start : start + BLOCK].to(rounded), target[start : start + BLOCK, None]
                scores = (x @ table.mT).to(exact)
                # the smallest number a row can be scaled by without overflow is its maximum
                scores -= scores.amax(dim=-1, keepdim=True)
                right, mean = scores.gather(1, y), scores.mean(dim=-1, keepdim=True)
                scores.exp_()
                sums = scores.sum(dim=-1, keepdim=True)
                logs = sums.log()
                plain += (logs - right).sum()
                total += (logs - (1.0 - smoothing) * right - smoothing * mean).sum()
                if grad_features is not None and grad_weight is not None:
                    # the gradient of the sum, not of the mean: divided by the count it would leave float16's range
                    scores *= 1.0 / sums
                    if smoothing:
                        scores -= smoothing / size
                    scores.scatter_add_(1, y, scores.new_full((), smoothing - 1.0).expand(len(y), 1))
                    if rounded == exact:
                        torch.mm(scores, table, out=grad_features[start : start + BLOCK])
                        grad_weight.addmm_(scores.mT, x)
                    else:
                        slopes = scores.to(rounded)
                        grad_features[start : start + BLOCK] = slopes @ table
                        grad_weight += slopes.mT @ x
        ctx.save_for_backward(grad_features, grad_weight)
        ctx.count, ctx.types = max(count, 1), (features.dtype, weight.dtype)
        loss, plain = (total / ctx.count).to(exact), (plain / ctx.count).to(exact)
        ctx.mark_non_differentiable(plain)
        return loss, plain

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream / ctx.count
        grads = (grad * scale for grad in ctx.saved_tensors)
        return *(grad.to(dtype) for grad, dtype in zip(grads, ctx.types, strict=True)), None, None
