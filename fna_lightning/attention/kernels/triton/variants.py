"""Variants of the jit functions to compile ahead of time, without a GPU."""

from typing import Any, NamedTuple

import torch

from fna_lightning.attention.kernels.triton.bias_grad import bias_grad_kernel
from fna_lightning.attention.kernels.triton.blocks import Architecture, Pass
from fna_lightning.attention.kernels.triton.forward import forward_kernel
from fna_lightning.attention.kernels.triton.key_grad import key_grad_kernel
from fna_lightning.attention.kernels.triton.launch import blocks_for, constants, with_blocks
from fna_lightning.attention.kernels.triton.query_grad import query_grad_kernel

KERNELS: dict[Pass, Any] = {
    "forward": forward_kernel,
    "queries": query_grad_kernel,
    "keys": key_grad_kernel,
    "bias": bias_grad_kernel,
}
TYPES = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}
# Arguments that are pointers to the dtype of the tokens, to float32, and to other types.
TOKENS = {"q", "k", "v", "grad", "out", "query_grad", "key_grad", "value_grad"}
FLOATS = {"query_norms", "key_norms", "bias", "bias_grad", "kappa", "exponent", "stats", "delta", "sums"}
OTHERS = {"mask": "*u8", "spans": "*i32", "seed": "*i64", "keep_scale": "fp32"}


class Variant(NamedTuple):
    """One variant of a jit function.

    ``triton.compile(ASTSource(function, signature, constants, attributes), target, options)`` builds it.

    Args:
        function: the jit function.
        signature: the type of each argument by name, "constexpr" for constants and arguments that are None.
        constants: the values of the constants, by name.
        attributes: the arguments that are multiples of 16, as pointers and strides of ordinary tensors are.
        options: num_warps and num_stages.
    """

    function: Any
    signature: dict[str, str]
    constants: dict[str, Any]
    attributes: dict[tuple[int], list[list[Any]]]
    options: dict[str, int]


def kernel_variants(
    architecture: Architecture, dtype: torch.dtype, width: int, *, learn: bool = False, **settings: Any
) -> dict[str, Variant]:
    """Return the variant of each pass for an architecture, a dtype and a head width.

    Args:
        architecture: "sm80", "sm90" or "gfx942".
        dtype: torch.float32, torch.bfloat16 or torch.float16.
        width: the width of keys and values.
        learn: whether kappa and the exponent are learned.
        settings: keyword arguments of ``launch.constants``: profile, sphere, causal, exclude_self, mask (0, 1 or 2),
            bias, dropout, group, precise_values.
    """
    shared = constants(architecture, dtype, width, width, **settings)
    extra = {
        "queries": {"LEARN_KAPPA": learn, "LEARN_EXPONENT": learn and shared["PROFILE"] != 1},
        "bias": {"SUM_ROWS": False, "SUM_COLUMNS": False},
    }
    variants: dict[str, Variant] = {}
    for name, function in KERNELS.items():
        if name == "bias" and not shared["BIAS"]:
            continue
        values = with_blocks(shared, blocks_for(name, architecture, shared)) | extra.get(name, {})
        options = {option: values.pop(option) for option in ("num_warps", "num_stages")}
        variants[name] = _variant(function, dtype, values, options)
    return variants


def _variant(function: Any, dtype: torch.dtype, values: dict[str, Any], options: dict[str, int]) -> Variant:
    missing = set()
    if not values["MASK"]:
        missing.add("mask")
    if values["MASK"] != 1:
        missing.add("spans")
    if not values["BIAS"]:
        missing |= {"bias", "bias_grad"}
    if not values["DROPOUT"]:
        missing.add("seed")
    values = values | dict.fromkeys(missing & set(function.arg_names))
    signature, attributes = {}, {}
    for index, name in enumerate(function.arg_names):
        if name in values:
            signature[name] = "constexpr"
            continue
        pointer = f"*{TYPES[dtype]}" if name in TOKENS else "*fp32" if name in FLOATS else None
        signature[name] = pointer or OTHERS.get(name, "i32")
        multiple = pointer or name.endswith(("_batch", "_head", "_row", "width"))
        if multiple and not name.startswith(("mask_", "span_", "bias_")):
            attributes[(index,)] = [["tt.divisibility", 16]]
    return Variant(function, signature, values, attributes, options)
