"""Linear layer and cross entropy with label smoothing, fused so that the scores of all tokens are never in memory.

The scores of a few thousand tokens over a vocabulary of a few thousand words are larger than all other tensors of a
training step, and several passes over them take most of its time. Here a block of tokens is scored, turned into its
gradient in place and discarded while it is still in the processor's cache.
"""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from fna_lightning.attention.autocast import autocast_type, with_autocast_type
from fna_lightning.attention.linear import linear

# Number of tokens scored at once.
BLOCK = 256


def linear_cross_entropy(
    features: Tensor, weight: Tensor, target: Tensor, smoothing: float = 0.0
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the mean loss with label smoothing, the mean loss without it, and the accuracy.

    Only the first has a gradient. The accuracy is the share of targets with the highest score.

    Args:
        features: (T, D) feature vectors.
        weight: (V, D) weight of the linear layer.
        target: (T,) class indices.
        smoothing: amount of label smoothing, as in ``F.cross_entropy``.
    """
    if not 0.0 <= smoothing < 1.0:
        raise ValueError(f"label smoothing must lie in [0, 1), got {smoothing}")
    loss, plain, accuracy = _LinearCrossEntropy.apply(features, weight, target, smoothing)
    return loss, plain, accuracy


class _LinearCrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, features: Tensor, weight: Tensor, target: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        needs_grad = ctx.needs_input_grad[0] or ctx.needs_input_grad[1]
        device, count, size = features.device, len(target), len(weight)
        # Matrix products use the data type of autocast; everything else is computed in float32 at least. The rules of
        # autocast for single operators would not do that.
        compute_dtype = autocast_type(device) or features.dtype
        exact_dtype = torch.promote_types(features.dtype, torch.float32)
        grad_features = torch.empty_like(features, dtype=exact_dtype) if needs_grad else None
        grad_weight = torch.zeros_like(weight.mT, dtype=exact_dtype).mT if needs_grad else None
        total, plain, correct = (features.new_zeros((), dtype=torch.float64) for _ in range(3))
        with with_autocast_type(None, device):
            table = weight.to(compute_dtype)
            for start in range(0, count, BLOCK):
                x, y = features[start : start + BLOCK].to(compute_dtype), target[start : start + BLOCK, None]
                scores = linear(x, table).to(exact_dtype)
                # Subtracting the maximum avoids overflow in exp.
                scores -= scores.amax(dim=-1, keepdim=True)
                target_scores, mean = scores.gather(1, y), scores.mean(dim=-1, keepdim=True)
                # The highest score of a token is exactly 0 now.
                correct += (target_scores == 0.0).sum()
                scores.exp_()
                sums = scores.sum(dim=-1, keepdim=True)
                logs = sums.log()
                plain += (logs - target_scores).sum()
                total += (logs - (1.0 - smoothing) * target_scores - smoothing * mean).sum()
                if grad_features is not None and grad_weight is not None:
                    # The gradient of the sum, not of the mean, which would underflow in float16.
                    scores *= 1.0 / sums
                    if smoothing:
                        scores -= smoothing / size
                    scores.scatter_add_(1, y, scores.new_full((), smoothing - 1.0).expand(len(y), 1))
                    grad_scores = scores.to(compute_dtype)
                    grad_features[start : start + BLOCK] = linear(grad_scores, table.mT)
                    grad_weight += linear(x.mT, grad_scores.mT).mT
        ctx.save_for_backward(grad_features, grad_weight)
        ctx.count, ctx.types = max(count, 1), (features.dtype, weight.dtype)
        loss, plain, accuracy = ((value / ctx.count).to(exact_dtype) for value in (total, plain, correct))
        ctx.mark_non_differentiable(plain, accuracy)
        return loss, plain, accuracy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, upstream: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        scale = upstream / ctx.count
        grads = (grad * scale for grad in ctx.saved_tensors)
        return *(grad.to(dtype) for grad, dtype in zip(grads, ctx.types, strict=True)), None, None
