"""Exact attention on GPUs (CUDA and ROCm) in one pass over the keys, written in Triton.

The forward pass keeps two numbers per row, and the backward pass computes the weights again; it is deterministic.
Distances of float32 tokens have the precision of float32, also where PyTorch would multiply in TF32; products of
float16 and bfloat16 are summed in float32.

Triton comes with PyTorch on CUDA. It is imported at the first call. With TRITON_INTERPRET=1 in the environment before
that, the kernel runs on CPU tensors in Triton's interpreter: slow, but anybody can check it.
"""

import os
from functools import cache
from importlib.util import find_spec

import torch
from torch import Tensor

from fna_lightning.attention.kernels import radial_call
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.triton.blocks import MAX_WIDTH

MIN_CAPABILITY = (8, 0)


class Triton(Kernel):
    """Computes attentions that are a function of the distance, on a GPU."""

    name = "triton"
    portable = False
    grouped = True

    def unavailable(self) -> str | None:
        if not _installed():
            return "Triton is not installed (it comes with PyTorch for CUDA and ROCm)"
        if interpreted():
            return None
        return _no_device()

    def refusal(self, call: Call) -> str | None:
        if interpreted():
            if call.attention.kernel == "auto":
                return "Triton's interpreter (TRITON_INTERPRET=1) is for checks, so it must be named"
        elif call.q.device.type != "cuda":
            return f"it runs on a GPU, the tensors are on {call.q.device}"
        else:
            reason = _too_old(call.q.device)
            if reason is not None:
                return reason
        widths = (call.q.shape[-1], call.v.shape[-1])
        if max(widths) > MAX_WIDTH:
            return f"it supports heads up to a width of {MAX_WIDTH}, got {max(widths)}"
        return radial_call.refusal(call)

    def run(self, call: Call) -> Tensor:
        return radial_call.run(call, self.name)


def interpreted() -> bool:
    """Return whether the jit functions run in Triton's interpreter; Triton decides this when they are imported."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def _installed() -> bool:
    try:
        return find_spec("triton") is not None
    except ImportError:
        return False


@cache
def _no_device() -> str | None:
    if not torch.cuda.is_available():
        return "no CUDA or ROCm device was found (TRITON_INTERPRET=1 runs it on the CPU, to check it)"
    return _too_old(torch.device("cuda", torch.cuda.current_device()))


@cache
def _too_old(device: torch.device) -> str | None:
    if torch.version.hip is not None:
        return None
    capability = torch.cuda.get_device_capability(device)
    if capability >= MIN_CAPABILITY:
        return None
    return f"it needs a GPU of compute capability 8.0 (Ampere) or newer, got {capability[0]}.{capability[1]}"
