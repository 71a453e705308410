"""Kernels: the implementations of an attention, and the choice among them.

``auto`` takes the first kernel of ``KERNELS`` that supports the call. A kernel named by the user is used, or refused
with a reason; it is never replaced by another one. An exported program (``torch.export``, ONNX, TorchScript) must run
without this library, so ``auto`` then takes only kernels made of PyTorch operators.
"""

import logging
from dataclasses import replace
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fna_lightning.attention.inputs import check_values, repeat_heads, same_dtype
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.chunked import Chunked
from fna_lightning.attention.kernels.cpu import Cpu
from fna_lightning.attention.kernels.flex import Flex
from fna_lightning.attention.kernels.reference import Reference
from fna_lightning.attention.kernels.sdpa import Sdpa
from fna_lightning.attention.kernels.triton import Triton
from fna_lightning.attention.transforms import is_exporting

__all__ = ["KERNELS", "Call", "Kernel", "available_kernels", "check_kernel_name", "choose", "chosen_kernels", "compute"]

log = logging.getLogger("fna_lightning")

# Fastest first, the order in which "auto" tries them; `fna-lightning bench attention` measures it. On an AVX-512 CPU
# at 16x8x512x32, alpha = 2 takes 0.7 times the time of dot-product SDPA with cpu and twice its time with sdpa. On the
# small ViT and translation shapes cpu is also the fastest, so there is no exception for any length or width.
KERNELS: dict[str, Kernel] = {
    kernel.name: kernel for kernel in (Cpu(), Sdpa(), Triton(), Flex(), Chunked(), Reference())
}

_last: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def available_kernels() -> dict[str, str]:
    """Return the name of every kernel with "ok", or with the reason why it cannot run on this machine."""
    return {name: kernel.unavailable() or "ok" for name, kernel in KERNELS.items()}


def check_kernel_name(name: str) -> None:
    """Raise if there is no kernel called ``name``."""
    if name != "auto" and name not in KERNELS:
        raise ValueError(f"unknown kernel {name!r}; choose one of auto, {', '.join(KERNELS)}")


def choose(call: Call) -> Kernel:
    """Return the kernel named by the attention, or for "auto" the fastest one that supports the call."""
    name = call.attention.kernel
    if name != "auto":
        kernel = KERNELS[name]
        reason = kernel.unavailable() or kernel.refusal(call)
        if reason is None and not kernel.portable and is_exporting() and torch.onnx.is_in_onnx_export():
            raise RuntimeError(f"kernel {name!r} cannot be exported to ONNX; use kernel='auto'")
        if reason is not None:
            others = [other.name for other in KERNELS.values() if not (other.unavailable() or other.refusal(call))]
            raise RuntimeError(
                f"kernel {name!r} cannot run here: {reason}; use kernel='auto' or one of {', '.join(others)}"
            )
        return kernel
    exporting = is_exporting()
    return next(
        kernel
        for kernel in _in_order(call)
        if not (kernel.unavailable() or kernel.refusal(call)) and (kernel.portable or not exporting)
    )


def _in_order(call: Call) -> list[Kernel]:
    """Return the kernels in the order in which "auto" tries them for this call."""
    kernels = list(KERNELS.values())
    if call.q.device.type == "cuda" and call.radial is not None:
        # sdpa computes the Gaussian with more coordinates, copies of q, k and v, and a mask with a row for each query.
        # triton needs none of them (estimate: neither has been measured on a GPU).
        sdpa = KERNELS["sdpa"]
        kernels.remove(sdpa)
        kernels.insert(1 + max((i for i, kernel in enumerate(kernels) if kernel.name in ("cpu", "triton"))), sdpa)
    return kernels


def compute(call: Call) -> Tensor:
    """Check the values against queries and keys, and return the output of the call."""
    check_values(call.q, call.k, call.v, call.group_size)
    if call.q.dtype is not call.k.dtype:
        q, k = same_dtype(call.q, call.k)
        call = replace(call, q=q, k=k)
    if call.attention.training and call.attention.observes_keys:
        call.attention.observe_keys(repeat_heads(call.k, call.group_size), call.mask)
    kernel = choose(call)
    # The repr of an attention takes longer than a small call, so it is computed only when the kernel changes.
    if not torch.compiler.is_compiling() and _last.get(call.attention) != kernel.name:
        _last[call.attention] = kernel.name
        _log_once(repr(call.attention), kernel.name)
    return kernel.run(call if kernel.grouped else call.ungrouped())


def chosen_kernels(*models: nn.Module) -> dict[str, str]:
    """Return the kernel last used for each attention of the models, by the repr of the attention."""
    parts = [part for model in models for part in model.modules() if part in _last]
    return {repr(part): _last[part] for part in parts}


@cache
def _log_once(attention: str, kernel: str) -> None:
    log.info("%s is computed by the %r kernel", attention, kernel)
