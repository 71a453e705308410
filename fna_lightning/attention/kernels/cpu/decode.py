"""One query per sequence against its keys, in C: decoding steps, which need no gradient.

The other functions of the C code pack the keys before they multiply, which is worth it for several queries only. Here
each key and value is read once, so a step takes as long as reading the cache.
"""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from fna_lightning.attention.kernels import radial_call
from fna_lightning.attention.kernels.base import Call
from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.kernels.radial_checks import PROFILES
from fna_lightning.attention.transforms import PLAIN_TENSORS, is_plain

if TYPE_CHECKING:
    from fna_lightning.attention.base import Attention

# Value of `profile` for dot products, after those of the profiles of a distance.
DOT = 3
# Number of queries of a sequence from which packing its keys is worth it.
MOST_QUERIES = 16
# Numbers of keys and values above which one more thread is worth its start-up time.
WORTH_A_THREAD = 50_000


def run(call: Call) -> Tensor | None:
    """Return the output of a call with one query per sequence, or None if it needs another function of the C code."""
    q, k, v, mask = call.q, call.k, call.v, call.mask
    # `refusal` of the kernel has checked widths and kappa.
    if not q.dim() == k.dim() == v.dim() == 4 or q.size(-2) != 1 or not k.size(-2):
        return None
    # Keys and values that are broadcast are left to the other functions: here they have the same heads.
    if k.shape[:3] != v.shape[:3] or q.shape[:2] != (k.size(0), k.size(1) * call.group_size) or q.size(3) != k.size(3):
        return None
    if mask.allowed is not None or mask.bias is not None or mask.exclude_self or call.dropout:
        return None
    if mask.is_causal and mask.offset < k.size(-2) - 1:
        return None
    form = call.radial
    if form is None or form.sphere or not _needs_values_only(q, k, v, form.kappa, form.exponent):
        return None
    kappa, exponent = (radial_call.per_head(value, q) for value in (form.kappa, form.exponent))
    k, v = (x if x.stride(-1) == 1 else x.contiguous() for x in (k, v))
    sizes = k.size(-2), k.size(1), v.size(-1)
    return attend(q[:, :, 0], c.tensor_view(k), c.tensor_view(v), sizes, kappa, exponent, PROFILES[form.profile])[
        :, :, None
    ]


def run_cached(attention: "Attention", q: Tensor, pool: Tensor, width: int, slots: Tensor) -> Tensor | None:
    """Return the output of queries that attend to all tokens of their hypotheses in a cache, or None if C cannot.

    Args:
        attention: the attention.
        q: (B, H, 1, D) queries.
        pool: (P, H, D + D_v) keys and values of all tokens, side by side.
        width: D.
        slots: (M, B) int32; row of ``pool`` of each token of a hypothesis.
    """
    if not _is_plain_step(attention, q):
        return None
    heads, d = q.size(1), q.size(-1)
    if d != width or pool.size(1) != heads or slots.size(1) != q.size(0) or slots.dtype is not torch.int32:
        return None
    law = _law(attention, q, pool)
    if law is None:
        return None
    row, head, _ = pool.stride()
    k = c.TensorView(pool.data_ptr(), row, head, 0)
    v = c.TensorView(pool.data_ptr() + width * pool.element_size(), row, head, 0)
    sizes = slots.size(0), heads, pool.size(-1) - width
    return attend(q[:, :, 0], k, v, sizes, *law, slots=slots.contiguous())[:, :, None]


def run_shared(attention: "Attention", q: Tensor, k: Tensor, v: Tensor, counts: Tensor) -> Tensor | None:
    """Return the output of a few dot-product queries of each sequence that attend to its first keys, or None.

    Args:
        attention: the attention.
        q: (B, H, N, D) queries.
        k: (B, H, M, D) keys.
        v: (B, H, M, D_v) values.
        counts: (B,) int32, number of keys of each sequence.
    """
    if not _is_plain_step(attention, q):
        return None
    (batch, heads, n, d), length = q.shape, k.size(2)
    if n > MOST_QUERIES or k.shape != (batch, heads, length, d) or v.shape[:3] != k.shape[:3]:
        return None
    if counts.shape != (batch,) or counts.dtype is not torch.int32 or k.stride(-1) != 1 or v.stride(-1) != 1:
        return None
    law = _law(attention, q, k, v)
    # For the other profiles, packing the keys is faster.
    if law is None or law[2] != DOT:
        return None
    rows = q.transpose(1, 2).reshape(batch * n, heads, d)
    sizes = length, heads, v.size(-1)
    out = attend(rows, c.tensor_view(k), c.tensor_view(v), sizes, *law, shared=n, counts=counts.contiguous())
    return out.view(batch, n, heads, -1).transpose(1, 2)


def _is_plain_step(attention: "Attention", q: Tensor) -> bool:
    """Return whether the C code is chosen and available, and the attention has no setting that it does not know."""
    if attention.kernel not in ("auto", "cpu") or c.unavailable() is not None or not q.is_cpu:
        return False
    if attention.exclude_self or attention.density_power or (attention.training and attention.dropout):
        return False
    return not (attention.training and attention.observes_keys)


def _law(attention: "Attention", q: Tensor, *others: Tensor) -> tuple[Tensor, Tensor | None, int] | None:
    """Return kappa and exponent of each head and the number of the profile, or None if C does not know them."""
    form = attention.radial(q)
    if form is None:
        scale = attention.plain_scale(q)
        if scale is None or not _needs_values_only(q, others[0], others[-1], scale, 0.0):
            return None
        return radial_call.per_head(scale, q), None, DOT
    if radial_call.form_refusal(form) or form.sphere:
        return None
    if not _needs_values_only(q, others[0], others[-1], form.kappa, form.exponent):
        return None
    kappa, exponent = (radial_call.per_head(value, q) for value in (form.kappa, form.exponent))
    return kappa, exponent, PROFILES[form.profile]


def _needs_values_only(q: Tensor, k: Tensor, v: Tensor, *parameters: "float | Tensor") -> bool:
    """Return whether the tensors are plain float32 tensors, and nobody needs a gradient."""
    if torch.compiler.is_compiling() or not is_plain():
        return False
    tensors = [q, k, v, *(value for value in parameters if isinstance(value, Tensor))]
    if any(type(x) not in PLAIN_TENSORS for x in tensors) or not q.dtype is k.dtype is v.dtype is torch.float32:
        return False
    return not (torch.is_grad_enabled() and any(x.requires_grad for x in tensors))


def attend(
    q: Tensor,
    k: c.TensorView,
    v: c.TensorView,
    sizes: tuple[int, int, int],
    kappa: Tensor,
    exponent: Tensor | None,
    profile: int,
    *,
    slots: Tensor | None = None,
    counts: Tensor | None = None,
    shared: int = 1,
) -> Tensor:
    """Return the (B, H, D_v) output of (B, H, D) queries, each of which attends to all of its keys.

    Args:
        q: float32.
        k: the keys, with the strides of batch, head and key.
        v: the values, in the same form.
        sizes: number of keys, number of key heads, and D_v.
        kappa: (H,) distance scales, or factors of the dot products.
        exponent: (H,), not used by the Gaussian and the dot product.
        profile: number of the profile of a distance, or ``DOT``.
        slots: (M, B) int32; batch index of each key and value of a sequence instead of its own.
        counts: (B / shared,) int32; number of keys of each sequence instead of all.
        shared: number of sequences in a row with the same keys and values.
    """
    batches, heads, d = q.shape
    m, key_heads, width = sizes
    q = q if q.stride(-1) == 1 else q.contiguous()
    out = q.new_empty(batches, heads, width)
    args = c.DecodeArgs(batches, heads, key_heads, m, d, width, _one_row(q), k, v, _one_row(out))
    args.kappa, args.profile = kappa.data_ptr(), profile
    args.exponent = None if exponent is None else exponent.data_ptr()
    args.shared = shared
    args.slots, args.counts = (None if table is None else table.data_ptr() for table in (slots, counts))
    args.threads = max(1, min(torch.get_num_threads(), batches * heads * m * (d + width) // WORTH_A_THREAD))
    c.run("fna_decode", args)
    return out


def _one_row(tensor: Tensor) -> c.TensorView:
    batch, head, _ = tensor.stride()
    return c.TensorView(tensor.data_ptr(), batch, head, 0)


assert DOT not in PROFILES.values()
