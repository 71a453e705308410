"""The compiled C kernel: loads the library with ctypes and passes tensors to it as pointers."""

import ctypes
import os
from ctypes import POINTER, Structure, c_double, c_float, c_int32, c_int64, c_uint64, c_void_p
from functools import cache
from pathlib import Path

import torch
from torch import Tensor

DISABLE = "FNA_DISABLE_CPU_KERNEL"
ABI = 7
PATH = Path(__file__).with_name("_fna_cpu.so")
# Number of multiplications and exponentials above which one more thread is worth its start-up time.
WORTH_A_THREAD = 100_000


class TensorView(Structure):
    """``fna_tensor`` of csrc/fna.h."""

    _fields_ = (("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64))


class MaskView(Structure):
    """``fna_mask`` of csrc/fna.h."""

    _fields_ = (("data", c_void_p), ("batch", c_int64), ("head", c_int64), ("row", c_int64), ("col", c_int64))


class BiasView(Structure):
    """``fna_bias`` of csrc/fna.h."""

    _fields_ = MaskView._fields_


class Args(Structure):
    """``fna_args`` of csrc/fna.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batches", "heads", "key_heads", "n", "m", "d", "dv")),
        *((name, TensorView) for name in ("q", "k", "v", "out", "grad_out", "grad_q", "grad_k", "grad_v")),
        ("mask", MaskView),
        ("bias", BiasView),
        ("grad_bias", TensorView),
        *((name, c_void_p) for name in ("stats", "kappa", "exponent", "grad_kappa", "grad_exponent")),
        ("offset", c_int64),
        ("seed", c_uint64),
        ("dropout", c_float),
        *((name, c_int32) for name in ("profile", "sphere", "causal", "exclude_self", "threads")),
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


class GeluArgs(Structure):
    """``fna_gelu_args`` of csrc/fna.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("in", "grad", "out")),
        ("count", c_int64),
        ("threads", c_int32),
    )


class DecodeArgs(Structure):
    """``fna_decode_args`` of csrc/fna.h."""

    _fields_ = (
        *((name, c_int64) for name in ("batches", "heads", "key_heads", "m", "d", "dv")),
        *((name, TensorView) for name in ("q", "k", "v", "out")),
        ("shared", c_int64),
        *((name, c_void_p) for name in ("slots", "counts", "kappa", "exponent")),
        *((name, c_int32) for name in ("profile", "threads")),
    )


class ScoresArgs(Structure):
    """``fna_scores_args`` of csrc/fna.h."""

    _fields_ = (
        ("in", c_void_p),
        *((name, c_int64) for name in ("rows", "size", "row")),
        *((name, c_void_p) for name in ("log_sums", "maxima")),
        ("threads", c_int32),
    )


class LargestArgs(Structure):
    """``fna_largest_args`` of csrc/fna.h."""

    _fields_ = (
        *((name, c_void_p) for name in ("in", "maxima")),
        *((name, c_int64) for name in ("rows", "size", "row", "count")),
        *((name, c_void_p) for name in ("values", "places")),
        ("threads", c_int32),
    )


@cache
def load() -> tuple[ctypes.CDLL | None, str]:
    """Return the library and "", or None and the reason why it is not available."""
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
    library.fna_gelu.argtypes = [POINTER(GeluArgs)]
    library.fna_scores.argtypes = [POINTER(ScoresArgs)]
    library.fna_largest.argtypes = [POINTER(LargestArgs)]
    library.fna_decode.argtypes = [POINTER(DecodeArgs)]
    return library, ""


def unavailable() -> str | None:
    """Return why the C kernel cannot be used, or None."""
    if os.environ.get(DISABLE, "") not in ("", "0"):
        return f"switched off by the environment variable {DISABLE}"
    return load()[1] or None


# torch.compile cannot trace the environment and ctypes, so it must treat the result as a constant. The public
# torch.compiler.assume_constant_result sets this private attribute and does nothing else, but it imports the whole
# compiler, which would add two seconds to every import of this package.
unavailable._dynamo_marked_constant = True  # type: ignore[attr-defined]


def instruction_set() -> str:
    """Return the instruction set that the library uses on this CPU."""
    library, reason = load()
    if library is None:
        raise RuntimeError(reason)
    return library.fna_isa().decode()


def tensor_view(tensor: Tensor) -> TensorView:
    """Return the C view of a (batch, head, row, column) float32 tensor that is contiguous in its last axis."""
    batch, head, row, _ = tensor.stride()
    return TensorView(tensor.data_ptr(), batch, head, row)


def mask_view(mask: Tensor, shape: tuple[int, int, int, int]) -> MaskView:
    """Return the C view of a boolean mask; broadcast axes have stride 0."""
    expanded = mask.expand(shape)
    return MaskView(expanded.data_ptr(), *expanded.stride())


def bias_view(bias: Tensor, shape: tuple[int, int, int, int]) -> BiasView:
    """Return the C view of a float32 bias; broadcast axes have stride 0."""
    expanded = bias.expand(shape)
    return BiasView(expanded.data_ptr(), *expanded.stride())


def threads_for(batches: int, heads: int, n: int, m: int, width: int) -> int:
    """Return the number of threads for a call of this size; never more than PyTorch may use."""
    return max(1, min(torch.get_num_threads(), batches * heads * n * m * (width + 32) // WORTH_A_THREAD))


def run(name: str, args: Args | DropoutArgs | GeluArgs | DecodeArgs | ScoresArgs | LargestArgs) -> None:
    """Call a function of the library by its name; ctypes releases the GIL during the call."""
    library, reason = load()
    if library is None:
        raise RuntimeError(reason)
    if getattr(library, name)(ctypes.byref(args)):
        raise MemoryError(f"{name}: out of memory for the scratch space of {args.threads} threads")


def float64_zeros(shape: tuple[int, ...]) -> tuple[Tensor, int]:
    """Return a float64 tensor for a gradient that the C code sums, and its address."""
    tensor = torch.zeros(shape, dtype=torch.float64)
    assert tensor.element_size() == ctypes.sizeof(c_double)
    return tensor, tensor.data_ptr()
