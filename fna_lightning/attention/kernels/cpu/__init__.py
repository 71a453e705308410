"""Exact attention on the CPU in one pass over the keys, written in C.

The power law then costs about as much as dot-product attention. The weights are never stored: the forward pass keeps
two numbers per row, and the backward pass computes the weights again. Grouped keys and values are not copied. float16
and bfloat16 are computed in float32; float64 is left to the ``chunked`` kernel.
"""

from torch import Tensor

from fna_lightning.attention.kernels import radial_call
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.cpu import decode, library


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
        return radial_call.refusal(call)

    def run(self, call: Call) -> Tensor:
        out = decode.run(call)
        return radial_call.run(call, self.name) if out is None else out
