"""Block masks of FlexAttention, built from the blocks of a mask and cached.

``create_block_mask`` evaluates a mask at every pair of tokens: 55 operations and 50 MB for 8 x 8 heads of 512 tokens.
Here the (n, m) matrix is never built: causality and self-exclusion are decided from the corners of a block, and a key
padding mask is reduced over its one row of keys. Only a mask that differs between queries is read as a matrix.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention.flex_attention import BlockMask

from fna_lightning.attention.kernels.base import four_axes
from fna_lightning.attention.masks import AttentionMask

# FlexAttention's default size of a block.
BLOCK = 128
# The masks of one batch: padding of the source, causal, and both of a decoder. An entry keeps its mask in memory.
CACHE_SIZE = 4

_cache: OrderedDict[tuple[Any, ...], tuple[Tensor | None, BlockMask]] = OrderedDict()


def block_mask(mask: AttentionMask, batch_shape: tuple[int, ...], n: int, m: int, device: torch.device) -> Any:
    """Return the BlockMask of ``n`` queries and ``m`` keys, from the cache if the mask has not changed, or None.

    None means that every query may attend to every key. ``batch_shape`` has all axes before the queries.
    """
    if mask.allowed is None and not mask.is_causal and not mask.exclude_self:
        return None
    key = None if torch.compiler.is_compiling() else _cache_key(mask, batch_shape, n, m, device)
    if key is not None and key in _cache:
        _cache.move_to_end(key)
        return _cache[key][1]
    result = build(mask, batch_shape, n, m, device)
    if key is not None:
        # The entry holds the mask, so that no other tensor can have its address.
        _cache[key] = (mask.allowed, result)
        if len(_cache) > CACHE_SIZE:
            _cache.popitem(last=False)
    return result


def _cache_key(mask: AttentionMask, batch_shape: tuple[int, ...], n: int, m: int, device: torch.device) -> Any:
    """Return what a BlockMask depends on, or None if a change of the mask could not be detected.

    A write to a tensor or to a view of it changes its version.
    """
    settings = (tuple(batch_shape), n, m, device, mask.is_causal, mask.exclude_self, mask.offset)
    allowed = mask.allowed
    # A BlockMask that is made in inference mode cannot be used in training.
    if torch.is_inference_mode_enabled() or (allowed is not None and allowed.is_inference()):
        return None
    if allowed is None:
        return settings
    return (*settings, allowed.data_ptr(), allowed.shape, allowed.stride(), allowed._version)


def build(mask: AttentionMask, batch_shape: tuple[int, ...], n: int, m: int, device: torch.device) -> BlockMask:
    """Return the BlockMask of a mask that hides at least one kind of key."""
    matrix = None if mask.allowed is None else _matrix(mask.allowed, batch_shape, m)
    queries = torch.arange(-(-n // BLOCK), device=device)[:, None] * BLOCK + mask.offset
    keys = torch.arange(-(-m // BLOCK), device=device) * BLOCK
    visible = torch.ones(1, 1, queries.size(0), keys.size(0), dtype=torch.bool, device=device)
    full = visible & (keys + BLOCK <= m) & (queries - mask.offset + BLOCK <= n)
    if matrix is not None:
        some_allowed, all_allowed = _reduce_blocks(matrix)
        visible, full = visible & some_allowed, full & all_allowed
    if mask.is_causal:
        visible = visible & (keys < (queries + BLOCK).clamp(max=mask.offset + n))
        full = full & (keys + BLOCK - 1 <= queries)
    if mask.exclude_self:
        full = full & ~((keys < queries + BLOCK) & (queries < keys + BLOCK))
    partial_counts, partial_indices = _ordered(visible & ~full)
    full_counts, full_indices = _ordered(full)
    return BlockMask.from_kv_blocks(
        partial_counts,
        partial_indices,
        full_counts,
        full_indices,
        BLOCK_SIZE=(BLOCK, BLOCK),
        mask_mod=_mask_mod(mask, matrix, device),
        seq_lengths=(n, m),
    )


def _matrix(allowed: Tensor, batch_shape: tuple[int, ...], m: int) -> Tensor:
    """Return a mask as (B or 1, H or 1, N or 1, M); axes of size 1 are not expanded, except that of the keys."""
    if allowed.dim() > 4:
        allowed = allowed.expand(*batch_shape[:-1], *allowed.shape[-3:])
    matrix = four_axes(allowed)
    return matrix.expand(*matrix.shape[:-1], m)


def _reduce_blocks(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return whether any key and whether every key of each block is allowed, both (B or 1, H or 1, rows, columns)."""
    rows = -(-matrix.size(-2) // BLOCK) * BLOCK if matrix.size(-2) > 1 else 1
    columns = -(-matrix.size(-1) // BLOCK) * BLOCK
    padded = F.pad(matrix, (0, columns - matrix.size(-1), 0, rows - matrix.size(-2)))
    blocks = padded.unflatten(-1, (-1, BLOCK)).unflatten(-3, (-1, min(rows, BLOCK)))
    return blocks.any(dim=-1).any(dim=-2), blocks.all(dim=-1).all(dim=-2)


def _ordered(blocks: Tensor) -> tuple[Tensor, Tensor]:
    """Return the number of marked blocks in each row, and the indices of the columns with the marked ones first."""
    counts = blocks.sum(dim=-1, dtype=torch.int32)
    return counts, blocks.to(torch.int8).argsort(dim=-1, descending=True, stable=True).to(torch.int32)


def _mask_mod(mask: AttentionMask, matrix: Tensor | None, device: torch.device) -> Callable[..., Tensor]:
    """Return FlexAttention's function of (batch, head, query, key) that is True where attention is allowed."""
    # A tensor: FlexAttention would be compiled again for every other number, at each step of decoding.
    offset = torch.full((), mask.offset, device=device)
    used_axes = () if matrix is None else tuple(size > 1 for size in matrix.shape)
    compact = None if matrix is None else matrix.squeeze()
    is_causal, exclude_self = mask.is_causal, mask.exclude_self

    def mask_mod(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        allowed = key >= 0
        if compact is not None:
            index = tuple(axis for axis, used in zip((batch, head, query, key), used_axes, strict=True) if used)
            allowed = allowed & (compact[index] if index else compact)
        if is_causal:
            allowed = allowed & (key <= query + offset)
        if exclude_self:
            allowed = allowed & (key != query + offset)
        return allowed

    return mask_mod
