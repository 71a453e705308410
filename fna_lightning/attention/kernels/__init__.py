"""How an attention is computed, apart from what it is.

``auto`` takes the first kernel of ``KERNELS`` that can do the call. A kernel the user named is used or refused with
its reason, never replaced. A program that is exported (``torch.export``, ONNX) must run elsewhere: there ``auto`` keeps
to what PyTorch has by itself.
"""

import logging
from dataclasses import replace
from functools import cache
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from fna_lightning.attention.inputs import check_values, same_type
from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.chunked import Chunked
from fna_lightning.attention.kernels.cpu import Cpu
from fna_lightning.attention.kernels.flex import Flex
from fna_lightning.attention.kernels.reference import Reference
from fna_lightning.attention.kernels.sdpa import Sdpa

__all__ = ["KERNELS", "Call", "Kernel", "available_kernels", "check_kernel_name", "choose", "chosen_kernels", "compute"]

log = logging.getLogger("fna_lightning")

# Fastest first: the order in which "auto" asks; `fna-lightning bench attention` measures it. On an AVX-512 processor at
# 16x8x512x32 alpha = 2 takes 0.7 of dot-product SDPA by cpu and twice SDPA by sdpa. On the small ViT and translation
# shapes cpu is ahead of every other kernel too, so no length or width is excepted.
KERNELS: dict[str, Kernel] = {kernel.name: kernel for kernel in (Cpu(), Sdpa(), Flex(), Chunked(), Reference())}

_chosen: dict[str, str] = {}
_last: WeakKeyDictionary[nn.Module, str] = WeakKeyDictionary()


def available_kernels() -> dict[str, str]:
    """Return every kernel's name with "ok", or the reason it cannot run on this machine."""
    return {name: kernel.unavailable() or "ok" for name, kernel in KERNELS.items()}


def check_kernel_name(name: str) -> None:
    """Raise if there is no kernel called ``name``."""
    if name != "auto" and name not in KERNELS:
        raise ValueError(f"unknown kernel {name!r}; choose one of auto, {', '.join(KERNELS)}")


def choose(call: Call) -> Kernel:
    """Return the kernel the attention names, or for "auto" the fastest one that can do the call."""
    name = call.attention.kernel
    if name != "auto":
        kernel = KERNELS[name]
        reason = kernel.unavailable() or kernel.refusal(call)
        if reason is not None:
            can = [other for other, it in KERNELS.items() if not (it.unavailable() or it.refusal(call))]
            raise RuntimeError(
                f"kernel {name!r} cannot run here: {reason}; use kernel='auto' or one of {', '.join(can)}"
            )
        return kernel
    exporting = torch.compiler.is_exporting()
    return next(
        kernel
        for kernel in KERNELS.values()
        if not (kernel.unavailable() or kernel.refusal(call)) and (kernel.portable or not exporting)
    )


def compute(call: Call) -> Tensor:
    """Return the output of the call by the kernel it names, after the values are checked against queries and keys."""
    check_values(call.q, call.k, call.v)
    if call.q.dtype is not call.k.dtype:
        q, k = same_type(call.q, call.k)
        call = replace(call, q=q, k=k)
    kernel = choose(call)
    # an attention is named only when its kernel changes: its name takes longer than a small call
    if not torch.compiler.is_compiling() and _last.get(call.attention) != kernel.name:
        _last[call.attention] = kernel.name
        _announce(repr(call.attention), kernel.name)
    return kernel.run(call)


def chosen_kernels() -> dict[str, str]:
    """Return the kernel last used for each attention in this process, by the attention's name."""
    return dict(_chosen)


def _announce(attention: str, kernel: str) -> None:
    _chosen[attention] = kernel
    _log_once(attention, kernel)


@cache
def _log_once(attention: str, kernel: str) -> None:
    log.info("%s is computed by the %r kernel", attention, kernel)
