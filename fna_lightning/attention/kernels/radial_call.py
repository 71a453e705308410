"""A call of an attention by distance, prepared for the operator ``radial_attention``.

The kernels ``cpu`` and ``triton`` share it: which calls the operator refuses, and how tensors get its four axes.
"""

import torch
from torch import Tensor

from fna_lightning.attention.distance import unit
from fna_lightning.attention.kernels.base import Call, Radial, four_axes
from fna_lightning.attention.kernels.radial import radial_attention
from fna_lightning.attention.kernels.radial_checks import DTYPES, PROFILES
from fna_lightning.attention.transforms import PLAIN_TENSORS, is_plain

# With a smaller kappa, squared distances in units of kappa overflow float32 (first value), and the rounding error of an
# angle changes the Gaussian (second value).
MIN_KAPPA, MIN_GAUSSIAN_ANGLE = 1e-12, 1e-2


def refusal(call: Call) -> str | None:
    """Return why no implementation of the operator can compute this call, or None."""
    if call.attention.density_power:
        return "it does not support density_power"
    for tensor in (call.q, call.k, call.v):
        if tensor.dtype not in DTYPES:
            return f"it computes in float32, got {tensor.dtype}"
    if not call.q.shape[-1]:
        return "it needs a head width of at least 1, got 0"
    form = call.radial
    if form is None:
        return f"{call.attention} is not a function of a distance"
    return form_refusal(form)


def form_refusal(form: Radial) -> str | None:
    """Return why no implementation of the operator can compute this function of a distance, or None."""
    if form.profile == "student" and form.sphere:
        return "it computes the profile of Student's t on R^d only"
    least = MIN_GAUSSIAN_ANGLE if form.profile == "gaussian" and form.sphere else MIN_KAPPA
    if isinstance(form.kappa, float) and form.kappa < least:
        return f"kappa must be at least {least} for distances in float32, got {form.kappa}"
    return None


def run(call: Call, kernel: str) -> Tensor:
    """Return the (..., N, D_v) output of a call that ``refusal`` accepts, by the implementation ``kernel``.

    The C code computes in float32, Triton in the dtype of the tensors. On the sphere Triton normalizes the tokens
    itself: unit vectors rounded to half precision would have other angles.
    """
    radial = call.radial
    assert radial is not None, "refusal() comes first"
    q, k, v = call.q, call.k, call.v
    if not q.dtype is k.dtype is v.dtype is torch.float32 and (kernel == "cpu" or not q.dtype is k.dtype is v.dtype):
        q, k, v = q.float(), k.float(), v.float()
    if radial.sphere and kernel == "cpu":
        q, k = unit(q), unit(k)
    batch_shape = q.shape[:-2]
    if call.group_size > 1:
        batch_shape = torch.Size((*torch.broadcast_shapes(*(x.shape[:-3] for x in (q, k, v))), q.size(-3)))
        q, k, v = (x.expand(*batch_shape[:-1], *x.shape[-3:]) for x in (q, k, v))
    elif not (batch_shape == k.shape[:-2] == v.shape[:-2]):
        batch_shape = torch.broadcast_shapes(batch_shape, k.shape[:-2], v.shape[:-2])
        q, k, v = (x.expand(*batch_shape, *x.shape[-2:]) for x in (q, k, v))
    mask, bias = call.mask, call.mask.bias
    allowed = mask.allowed
    if bias is not None and bias.dtype is not torch.float32 and (kernel == "cpu" or bias.dtype is not q.dtype):
        bias = bias.float()
    if len(batch_shape) != 2:
        allowed, bias = _matrix_axes(allowed, batch_shape), _matrix_axes(bias, batch_shape)
        q, k, v = four_axes(q), four_axes(k), four_axes(v)
    seed = None
    if call.dropout:
        seed = torch.randint(2**62, (), dtype=torch.int64, device=q.device)
    out = radial_attention(
        q,
        k,
        v,
        allowed,
        bias,
        per_head(radial.kappa, q),
        per_head(radial.exponent, q),
        seed,
        PROFILES[radial.profile],
        radial.sphere,
        mask.is_causal,
        mask.exclude_self,
        mask.offset,
        call.dropout,
        kernel,
    )
    if len(batch_shape) != 2:
        out = out.reshape(*batch_shape, *out.shape[-2:])
    return out if out.dtype == call.v.dtype else out.to(call.v.dtype)


def _matrix_axes(matrix: Tensor | None, batch_shape: torch.Size) -> Tensor | None:
    """Return a mask or bias of (*batch_shape, n, m) with at most four axes, which broadcast to (batch, head, n, m)."""
    if matrix is None or matrix.dim() <= 3 or len(batch_shape) <= 2:
        return matrix
    if matrix.shape[:-3].numel() > 1:
        matrix = matrix.expand(*batch_shape[:-1], *matrix.shape[-3:])
    return matrix.flatten(0, -4)


# Values of attentions that learn nothing, as tensors: creating them takes a tenth of the time of a small call.
_constants: dict[tuple[float, int, torch.device], Tensor] = {}
MAX_CONSTANTS = 256


def per_head(value: float | Tensor, q: Tensor) -> Tensor:
    """Return kappa or the exponent of each head as a float32 tensor."""
    heads, device = q.size(1), q.device
    if isinstance(value, Tensor):
        if value.numel() not in (1, heads):
            raise ValueError(
                f"this attention has parameters for {value.numel()} heads, the queries have {heads}; create it with "
                f"for_heads({heads})"
            )
        return value.to(torch.float32).expand(heads).contiguous()
    if torch.compiler.is_compiling() or type(q) not in PLAIN_TENSORS:
        # Tensors of a trace belong to it.
        return torch.full((heads,), value, dtype=torch.float32, device=device)
    constant = _constants.get((value, heads, device))
    if constant is None:
        # A tensor of inference mode could not be saved for the backward pass of a later call.
        with torch.inference_mode(False):
            constant = torch.full((heads,), value, dtype=torch.float32, device=device)
        # A tensor created under a transform or a mode belongs to it, too.
        if is_plain():
            if len(_constants) >= MAX_CONSTANTS:
                _constants.clear()
            _constants[value, heads, device] = constant
    return constant
