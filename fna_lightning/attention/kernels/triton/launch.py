"""The Python side of the Triton kernels: constants, strides, and the preparation both passes share.

The jit functions and their constants:

    prepare_kernel, span_kernel, delta_kernel   prepare.py, before the passes
    forward_kernel                              forward.py
    query_grad_kernel                           query_grad.py: gradient of the queries, sums for kappa and the exponent
    key_grad_kernel                             key_grad.py: gradients of the keys and values
    bias_grad_kernel                            bias_grad.py

    PROFILE            0 power law, 1 Gaussian, 2 Student
    SPHERE             whether the distance is an angle
    CAUSAL, EXCLUDE_SELF, BIAS, DROPOUT         whether the call has them
    MASK               0 none, 1 one row of keys for all queries, 2 any matrix
    GROUP              query heads per key head
    TIE                the relative rounding error below which a squared distance is 0
    HALF               whether q, k, v are float16 or bfloat16
    BACKEND            "cuda", "hip" or "interpret" (Triton's interpreter, which has no inline assembly)
    SCORE_PRECISION    precision of products with queries and keys: tf32x3 (three products in TF32) or ieee
    VALUE_PRECISION    precision of products with values: tf32x3, tf32 or ieee
    BLOCK_M, BLOCK_N   queries and keys of a tile
    BLOCK_D, BLOCK_V   padded widths of keys and values
    WHOLE_D, WHOLE_V   whether nothing is padded
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from fna_lightning.attention.kernels.triton import interpreted
from fna_lightning.attention.kernels.triton.blocks import Architecture, Blocks, Pass, block_sizes, padded_width
from fna_lightning.attention.kernels.triton.prepare import prepare_kernel, span_kernel

# Blocks of the functions that only read or write tokens once.
TOKEN_BLOCK, SPAN_BLOCK = 32, 1024
NO_STRIDES = (0, 0, 0, 0)


def architecture_of(device: torch.device) -> Architecture:
    """Return the architecture whose blocks a device uses."""
    if interpreted():
        return "interpret"
    if torch.version.hip is not None:
        return "gfx942"
    return "sm90" if torch.cuda.get_device_capability(device) >= (9, 0) else "sm80"


def backend_of(architecture: Architecture) -> str:
    """Return the BACKEND of the jit functions."""
    return {"interpret": "interpret", "gfx942": "hip"}.get(architecture, "cuda")


def tie_tolerance(width: int) -> float:
    """Return the largest rounding error of |q|^2 + |k|^2 - 2 q.k of equal tokens, as a part of |q|^2 + |k|^2.

    It is 8 times the resolution of float32. Tensor cores round every partial sum towards 0, so it grows with the width.
    """
    return 2.0**-20 * max(1.0, width / 64)


def constants(
    architecture: Architecture,
    dtype: torch.dtype,
    width: int,
    value_width: int,
    *,
    profile: int = 0,
    sphere: bool = False,
    causal: bool = False,
    exclude_self: bool = False,
    mask: int = 0,
    bias: bool = False,
    dropout: bool = False,
    group: int = 1,
    precise_values: bool = True,
) -> dict[str, Any]:
    """Return the constants that all passes share; the block sizes are added by ``with_blocks``."""
    backend, half = backend_of(architecture), dtype != torch.float32
    tf32 = backend == "cuda" and not half
    d, d_v = padded_width(width), padded_width(value_width)
    return {
        "PROFILE": profile,
        "SPHERE": sphere,
        "CAUSAL": causal,
        "EXCLUDE_SELF": exclude_self,
        "MASK": mask,
        "BIAS": bias,
        "DROPOUT": dropout,
        "GROUP": group,
        "TIE": tie_tolerance(d),
        "HALF": half,
        "BACKEND": backend,
        "SCORE_PRECISION": "tf32x3" if tf32 else "ieee",
        "VALUE_PRECISION": ("tf32x3" if precise_values else "tf32") if tf32 else "ieee",
        "BLOCK_D": d,
        "BLOCK_V": d_v,
        "WHOLE_D": d == width,
        "WHOLE_V": d_v == value_width,
    }


def blocks_for(name: Pass, architecture: Architecture, shared: dict[str, Any]) -> Blocks:
    """Return the blocks of a pass for the constants of a call."""
    return block_sizes(name, architecture, shared["HALF"], max(shared["BLOCK_D"], shared["BLOCK_V"]))


def with_blocks(shared: dict[str, Any], blocks: Blocks) -> dict[str, Any]:
    """Return the keyword arguments of a launch: all constants, warps and stages."""
    # Otherwise roots, powers and logarithms take extra instructions on AMD to keep numbers below 1e-38.
    options = {"allow_flush_denorm": True} if shared["BACKEND"] == "hip" else {}
    return {
        **shared,
        **options,
        "BLOCK_M": blocks.queries,
        "BLOCK_N": blocks.keys,
        "num_warps": blocks.num_warps,
        "num_stages": blocks.num_stages,
    }


def grid(tokens: int, block: int, heads: int) -> tuple[int]:
    """Return the grid of one program per block of tokens and head; one axis, because the others end at 65,535."""
    return (-(-tokens // block) * heads,)


def row_major(x: Tensor) -> Tensor:
    """Return the tensor, copied if its rows are not contiguous."""
    return x if x.stride(-1) == 1 else x.contiguous()


def strides(x: Tensor) -> tuple[int, ...]:
    """Return the strides of batch, head and token of a (batch, head, token, width) tensor."""
    return x.stride()[:3]


def pair_strides(matrix: Tensor | None, shape: tuple[int, int, int, int]) -> tuple[int, ...]:
    """Return the strides of a mask or bias as a (batch, head, n, m) tensor, 0 where it is broadcast."""
    return NO_STRIDES if matrix is None else matrix.expand(shape).stride()


@dataclass(frozen=True)
class Prepared:
    """A call, ready to launch: tensors with contiguous rows, norms, constants and the common arguments.

    Attributes:
        q, k: the tokens as the jit functions read them: centered copies in float32, otherwise the tensors of the call.
        tensors: the arguments from the queries to the seed.
        token_strides: the strides of q, k and v.
        matrix_strides: the strides of mask, spans and bias.
        sizes: the numbers from the number of heads to the scale of kept weights.
    """

    q: Tensor
    k: Tensor
    tensors: tuple[Tensor | None, ...]
    token_strides: tuple[int, ...]
    matrix_strides: tuple[int, ...]
    sizes: tuple[int | float, ...]
    shared: dict[str, Any]
    architecture: Architecture


def prepare(
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
) -> Prepared:
    """Return the call with the norms of its tokens, their centered copies and the spans of its mask."""
    b, h, n, d = q.shape
    groups, m, d_v = v.shape[1:]
    # Positions beyond the keys change nothing, and they would not fit in 32 bits.
    offset = max(-n, min(offset, m))
    mask_kind, spans, span_strides = 0, None, (0, 0)
    if mask is not None:
        mask = mask[(None,) * (4 - mask.dim())].view(torch.uint8)
        mask_kind = 1 if mask.size(2) == 1 or mask.stride(2) == 0 else 2
        if mask_kind == 1:
            spans, span_strides = _spans(mask[:, :, :1].expand(-1, -1, -1, m))
    if bias is not None:
        bias = bias[(None,) * (4 - bias.dim())]
    architecture = architecture_of(q.device)
    shared = constants(
        architecture,
        q.dtype,
        d,
        d_v,
        profile=profile,
        sphere=sphere,
        causal=causal,
        exclude_self=exclude_self,
        mask=mask_kind,
        bias=bias is not None,
        dropout=dropout > 0.0,
        group=h // groups,
        precise_values=torch.get_float32_matmul_precision() == "highest",
    )
    q, k, v = row_major(q), row_major(k), row_major(v)
    q, k, query_norms, key_norms = _tokens(q, k, shared)
    tensors = (q, k, v, query_norms, key_norms, mask, spans, bias, kappa.contiguous(), exponent.contiguous(), seed)
    matrix_strides = (*pair_strides(mask, (b, h, n, m)), *span_strides, *pair_strides(bias, (b, h, n, m)))
    threshold = min(round(dropout * 2**32), 2**32 - 1) - 2**31
    sizes = (h, n, m, d, d_v, offset, threshold, 1.0 / (1.0 - dropout))
    token_strides = (*strides(q), *strides(k), *strides(v))
    return Prepared(q, k, tensors, token_strides, matrix_strides, sizes, shared, architecture)


def _spans(mask: Tensor) -> tuple[Tensor, tuple[int, int]]:
    """Return the spans of a (batch, head, 1, m) key mask, and their strides for batch and head."""
    b, h, _, m = mask.shape
    spans = torch.empty(b, h, 2, dtype=torch.int32, device=mask.device)
    span_kernel[(b * h,)](mask, spans, mask.stride(0), mask.stride(1), mask.stride(3), h, m, BLOCK=SPAN_BLOCK)
    return spans, (2 * h if b > 1 else 0, 2 if h > 1 else 0)


def _tokens(q: Tensor, k: Tensor, shared: dict[str, Any]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return queries, keys and their norms.

    In float32 on R^d the tokens are copied relative to the mean key: the attention does not depend on the origin, but
    the rounding error of |q|^2 + |k|^2 - 2 q.k does. Half-precision tokens are not moved, because their copies would be
    rounded.
    """
    centers = not shared["SPHERE"] and not shared["HALF"]
    # A key that is not finite must not move the other keys.
    center = k.mean(dim=2).nan_to_num(0.0, 0.0, 0.0) if centers else None
    queries, query_norms = _prepare_tokens(q, center, shared, shared["GROUP"], keys=False)
    keys, key_norms = _prepare_tokens(k, center, shared, 1, keys=True)
    return queries, keys, query_norms, key_norms


def _prepare_tokens(
    x: Tensor, center: Tensor | None, shared: dict[str, Any], group: int, *, keys: bool
) -> tuple[Tensor, Tensor]:
    b, h, n, d = x.shape
    norms = torch.empty(b, h, n, dtype=torch.float32, device=x.device)
    centered = None if center is None else torch.empty(b, h, n, d, dtype=torch.float32, device=x.device)
    prepare_kernel[grid(n, TOKEN_BLOCK, b * h)](
        x,
        center,
        centered,
        norms,
        *strides(x),
        h,
        n,
        d,
        KEYS=keys,
        CENTER=center is not None,
        SPHERE=shared["SPHERE"],
        HALF=shared["HALF"],
        TIE=shared["TIE"],
        GROUP=group,
        BLOCK_M=TOKEN_BLOCK,
        BLOCK_D=shared["BLOCK_D"],
    )
    return (x if centered is None else centered), norms
