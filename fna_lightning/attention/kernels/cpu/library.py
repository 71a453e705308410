"""The compiled C kernel: found, loaded by ctypes, and called with tensors as plain pointers."""

import ctypes
import os
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

DISABLE = "FNA_DISABLE_CPU_KERNEL"
ABI = 2
PATH = Path(__file__).with_name("_fna_cpu.so")
# products and exponentials a second thread must save before it pays to wake it
WORTH_A_THREAD = 100_000


class TensorView(Structure):
    """``fna_tensor`` of csrc/fna.h."""

    _fields_ = (("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64))


class MaskView(Structure):
    """``fna_mask`` of csrc/fna.h."""

    _fields_ = (("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64), ("col", c_int64))


class Args(Structure):
    """``fna_args`` of csrc/fna.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batches", "heads", "n", "m", "d", "dv")),
        *((name, TensorView) for name in ("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")),
        ("mask", MaskView),
        *((name, c_void_p) for name in ("stats", "kappa", "exponent", "grad_kappa", "grad_exponent")),
        ("offset", c_int64),
        ("seed", c_uint64),
        ("dropout", c_float),
        *((name, c_int32) for name in ("gaussian", "sphere", "causal", "exclude_self", "threads")),
    )


class DropoutArgs(Structure):
    """``fna_dropout_args`` of csrc/fna.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("in", "out")),
        ("count", c_int64),
        ("seed", c_uint64),
        ("dropout", c_float),
        ("threads", c_int32),
    )


@cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """Return the library and "", or None and the reason there is none."""
    if not PATH.is_file():
        return None, (
            "the C kernel was not built with this installation (it needs a C compiler that knows GCC's vector "
            "extensions; install one and reinstall fna-lightning)"
        )
    try:
        library = ctypes.CDLL(str(PATH))
    except OSError as error:
        return None, f"the C kernel does not load: {error}"
    if library.fna_abi() != ABI:
        return None, f"the C kernel is of another version ({library.fna_abi()}, wanted {ABI}); reinstall fna-lightning"
    library.fna_isa.restype = ctypes.c_char_p
    for function in (library.fna_forward, library.fna_backward):
        function.argtypes = [POINTER(Args)]
    library.fna_dropout.argtypes = [POINTER(DropoutArgs)]
    return library, ""


def missing() -> str | None:
    """Return why the C kernel cannot be used, or None."""
    if os.environ.get(DISABLE, "") not in ("", "0"):
        return f"switched off by the environment variable {DISABLE}"
    return load()[1] or None


# a fact about the machine, not about the call: torch.compile asks once and does not trace it. This is all that
# torch.compiler.assume_constant_result does, but that imports the whole compiler first, which takes two seconds
missing._dynamo_marked_constant = True  # type: ignore[attr-defined]


def instruction_set() -> str:
    """Return the instruction set the library has chosen on this processor."""
    library, reason = load()
    if library is None:
        raise RuntimeError(reason)
    return library.fna_isa().decode()


def view(tensor: Tensor) -> TensorView:
    """Return a (batch, head, row, column) float32 tensor, contiguous in its last axis, as the C code sees it."""
    batch, head, row, _ = tensor.stride()
    return TensorView(tensor.data_ptr(), batch, head, row)


def mask_view(mask: Tensor | None, shape: tuple[int, int, int, int]) -> MaskView:
    """Return a boolean mask as the C code sees it; broadcast axes have stride 0."""
    if mask is None:
        return MaskView(None, 0, 0, 0, 0)
    spread = mask.expand(shape)
    return MaskView(spread.data_ptr(), *spread.stride())


def threads_for(batches: int, heads: int, n: int, m: int, width: int) -> int:
    """Return how many threads a call is worth; never more than PyTorch itself may use."""
    return max(1, min(torch.get_num_threads(), batches * heads * n * m * (width + 32) // WORTH_A_THREAD))


def run(name: str, args: Args | DropoutArgs) -> None:
    """Call "fna_forward", "fna_backward" or "fna_dropout"; ctypes lets other Python threads go on meanwhile."""
    library, reason = load()
    if library is None:
        raise RuntimeError(reason)
    if getattr(library, name)(ctypes.byref(args)):
        raise MemoryError(f"{name}: no memory left for the scratch space of {args.threads} threads")


def doubles(shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """Return a float64 tensor for a gradient summed in C, and its address."""
    tensor = torch.zeros(shape, dtype=torch.float64)
    assert tensor.element_size() == ctypes.sizeof(c_double)
    return tensor, tensor.data_ptr()
