"""Exact attention on the CPU in one pass over the keys, written in C.

The power law then costs about as much as dot-product attention. The weights are never stored: the forward pass keeps
two numbers per row, and the backward pass computes the weights again. Grouped keys and values are not copied. float16
and bfloat16 are computed in float32; float64 is left to the ``chunked`` kernel.
"""

import torch
from torch import Tensor

from fna_lightning.attention.kernels import radial
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.cpu import library

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
# With a smaller kappa, squared distances in units of kappa overflow float32 (first value), and the rounding error of an
# angle changes the Gaussian (second value).
MIN_KAPPA, MIN_GAUSSIAN_ANGLE = 1e-12, 1e-2


class Cpu(Kernel):
    """Computes attentions that are a function of the distance, on the CPU."""

    name = "cpu"
    portable = False
    grouped = True

    def unavailable(self) -> str | None:
        return library.unavailable()

    def refusal(self, call: Call) -> str | None:
        if call.q.device.type != "cpu":
            return f"it runs on the CPU, the tensors are on {call.q.device}"
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
        if form.profile == "student" and form.sphere:
            return "it computes the profile of Student's t on R^d only"
        least = MIN_GAUSSIAN_ANGLE if form.profile == "gaussian" and form.sphere else MIN_KAPPA
        if isinstance(form.kappa, float) and form.kappa < least:
            return f"kappa must be at least {least} for distances in float32, got {form.kappa}"
        return None

    def run(self, call: Call) -> Tensor:
        return radial.run(call, self.name)
