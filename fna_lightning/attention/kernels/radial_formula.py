"""The operator ``radial_attention`` as a formula of PyTorch operators, with derivatives of every order.

It takes the arguments of the operator and the memory of the whole (n, m) matrix. Derivatives that the fused kernels do
not have are computed with it: those of gradients, and those of forward mode. Derivatives at distance 0: see
``fna_lightning.attention.distance``.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from fna_lightning.attention.distance import euclidean, squared_angle, squared_euclidean, unit
from fna_lightning.attention.inputs import repeat_heads
from fna_lightning.attention.kernels.radial_checks import PROFILES
from fna_lightning.attention.masks import build_mask, masked_softmax
from fna_lightning.attention.pairwise import root
from fna_lightning.attention.transforms import with_pullback

# Beyond this squared chord the C kernel computes the angle from the antipode (csrc/head.h).
ANTIPODE = 3.9
POWER, GAUSSIAN = PROFILES["power"], PROFILES["gaussian"]
# Values of this width are computed at once to find the dropout factors; every kernel supports it.
FACTOR_WIDTH = 64


def formula(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None,
    bias: Tensor | None,
    kappa: Tensor,
    exponent: Tensor,
    seed: Tensor | None,
    profile: int,
    sphere: bool,
    causal: bool,
    exclude_self: bool,
    offset: int,
    dropout: float,
    kernel: str,
) -> Tensor:
    """Return the output of the operator."""
    dtype = v.dtype
    group = q.size(1) // k.size(1)
    q, k, v = q.float(), repeat_heads(k.float(), group), repeat_heads(v.float(), group)
    if sphere and kernel != "cpu":
        # The C kernel gets unit vectors.
        q, k = unit(q), unit(k)
    logits = _log_kernel(q, k, kappa[:, None, None], exponent[:, None, None], profile, sphere)
    combined = build_mask(mask, bias, is_causal=causal, exclude_self=exclude_self, offset=offset)
    if combined.bias is not None:
        logits = logits + combined.bias
    weights = masked_softmax(logits, combined.matrix(q.size(-2), k.size(-2), q.device))
    if dropout:
        weights = weights * _dropout_factors(weights, kappa, exponent, seed, dropout, kernel)
    return (weights @ v).to(dtype)


def _log_kernel(q: Tensor, k: Tensor, kappa: Tensor, exponent: Tensor, profile: int, sphere: bool) -> Tensor:
    if profile == POWER and not sphere:
        return -exponent * torch.log1p(euclidean(q, k) / kappa)
    s = squared_euclidean(q, k)
    if sphere:
        opposite = squared_euclidean(q, -k)
        if profile == POWER:
            return -exponent * torch.log1p(_angle(s, opposite) / kappa)
        s = squared_angle(s, lambda s: _angle(s, opposite))
    scaled = s / kappa / kappa
    return -scaled if profile == GAUSSIAN else -exponent * torch.log1p(scaled)


def _angle(s: Tensor, opposite: Tensor) -> Tensor:
    """Return the angle of unit vectors with squared chord ``s``, and ``opposite`` to the antipode.

    It is a function of the chord alone, or of the other chord alone, as in the C kernel: before the derivative of the
    normalization, another formula for the same angle would have another derivative off the sphere.
    """
    far = s > ANTIPODE
    return torch.where(
        far, math.pi - _angle_of_chord(opposite.masked_fill(~far, 1.0)), _angle_of_chord(s.masked_fill(far, 1.0))
    )


def _angle_of_chord(s: Tensor) -> Tensor:
    return 2.0 * torch.atan2(root(s), (4.0 - s).sqrt())


def _dropout_factors(
    weights: Tensor, kappa: Tensor, exponent: Tensor, seed: Tensor | None, dropout: float, kernel: str
) -> Tensor:
    """Return the factors of the weights, 0 or 1 / (1 - dropout), that the kernel has for this seed.

    With equal tokens and the identity matrix as values, the output of the kernel is the matrix of factors / m.
    """
    b, h, n, m = weights.shape
    options: dict[str, Any] = {"device": weights.device, "dtype": torch.float32}
    q, k = torch.zeros(b, h, n, 1, **options), torch.zeros(b, h, m, 1, **options)
    ones = torch.ones(h, **options)
    eye = torch.eye(m, **options).expand(b, h, m, m)
    settings = (GAUSSIAN, False, False, False, 0, dropout, kernel)
    # The factors are constants, and the operator refuses forward mode.
    with forward_ad._set_fwd_grad_enabled(False):
        columns = [
            torch.ops.fna_lightning.radial_attention(q, k, part.contiguous(), None, None, ones, ones, seed, *settings)[
                0
            ]
            for part in eye.split(FACTOR_WIDTH, dim=-1)
        ]
    return torch.cat(columns, dim=-1) * m


def gradient_formula(grad: Tensor, *inputs: Any) -> tuple[Tensor, ...]:
    """Return the gradients of q, k, v, bias, kappa and exponent as differentiable functions; ``inputs`` as ``formula``.

    The gradient of the bias is left out if there is none.
    """
    q, k, v, mask, bias, kappa, exponent, seed, *settings = inputs

    def output(q: Tensor, k: Tensor, v: Tensor, kappa: Tensor, exponent: Tensor, *bias: Tensor) -> Tensor:
        return formula(q, k, v, mask, bias[0] if bias else None, kappa, exponent, seed, *settings)

    tensors = (q, k, v, kappa, exponent) if bias is None else (q, k, v, kappa, exponent, bias)
    _, pullback = with_pullback(output, *tensors)
    dq, dk, dv, dkappa, dexponent, *dbias = pullback(grad)
    return dq, dk, dv, *dbias, dkappa, dexponent


def second_derivative(
    upstream: Sequence[Tensor | None], grad: Tensor, *inputs: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    """Return the gradients of grad, q, k, v, bias, kappa and exponent for ``upstream``, one per gradient of these.

    ``upstream`` has six entries, in the order of the operator's gradients; None counts as 0.
    """
    q, k, v, mask, bias, kappa, exponent, seed, *settings = inputs

    def gradients(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, kappa: Tensor, exponent: Tensor, *bias: Tensor) -> Any:
        return gradient_formula(grad, q, k, v, mask, bias[0] if bias else None, kappa, exponent, seed, *settings)

    tensors = (grad, q, k, v, kappa, exponent) if bias is None else (grad, q, k, v, kappa, exponent, bias)
    outputs, pullback = with_pullback(gradients, *tensors)
    cotangents = [x for index, x in enumerate(upstream) if index != 3 or bias is not None]
    dgrad, dq, dk, dv, dkappa, dexponent, *dbias = pullback(
        tuple(torch.zeros_like(out) if x is None else x for x, out in zip(cotangents, outputs, strict=True))
    )
    return dgrad, dq, dk, dv, dbias[0] if dbias else None, dkappa, dexponent
