"""The inputs and masks of ``nn.MultiheadAttention``: checks that raise the errors it raises, and one merged mask."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from fna_lightning.attention.autocast import autocast_type


def check_inputs(
    layer: nn.MultiheadAttention,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None,
    attn_mask: Tensor | None,
    is_causal: bool,
) -> None:
    """Raise unless tokens and masks have the axes, widths and dtypes that PyTorch's layer accepts."""
    axes = query.dim()
    if not (axes == key.dim() == value.dim() and axes in (2, 3)):
        raise AssertionError(
            "query, key and value must all have two axes (one sequence) or three (a batch), got "
            f"{tuple(query.shape)}, {tuple(key.shape)} and {tuple(value.shape)}"
        )
    for name, mask in (("key_padding_mask", key_padding_mask), ("attn_mask", attn_mask)):
        if mask is None:
            continue
        if mask.dtype is not torch.bool and not mask.is_floating_point():
            raise AssertionError(f"{name} must be boolean (True = may not attend) or floating-point, got {mask.dtype}")
        allowed_axes = (axes - 1,) if name == "key_padding_mask" else (2, 3)
        if mask.dim() not in allowed_axes:
            raise AssertionError(
                f"{name} must have {' or '.join(map(str, allowed_axes))} axes for a query with {axes}, got "
                f"{tuple(mask.shape)}"
            )
        if name == "attn_mask" and axes == 2 and mask.dim() == 3 and mask.size(0) != layer.num_heads:
            raise AssertionError(
                f"attn_mask of one sequence must be ({layer.num_heads}, queries, keys), got {tuple(mask.shape)}"
            )
        if mask.device != query.device:
            raise RuntimeError(
                f"query is on {query.device} and {name} is on {mask.device}; move them to the same device"
            )
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "is_causal is a hint about attn_mask, as in torch.nn.MultiheadAttention, and attn_mask is None; pass "
            "nn.Transformer.generate_square_subsequent_mask(n) too"
        )
    if query.size(-1) != layer.embed_dim:
        raise AssertionError(f"query must have width {layer.embed_dim} (embed_dim), got {tuple(query.shape)}")
    packed = layer.in_proj_weight is not None
    if key.shape != value.shape if packed else key.shape[:-1] != value.shape[:-1]:
        raise AssertionError(
            f"key and value must have the same batch and length, got {tuple(key.shape)} and {tuple(value.shape)}"
        )


def check_masks(padding: Tensor | None, mask: Tensor | None, q: Tensor, k: Tensor, need_weights: bool) -> None:
    """Raise unless the masks match (B, H, N, D) queries and (B, H, M, D) keys, before appended keys."""
    batch, heads, n, _ = q.shape
    m = k.size(2)
    if k.size(0) != batch:
        raise RuntimeError(f"query and key must have the same batch size, got {batch} and {k.size(0)}")
    if mask is not None and mask.shape not in ((n, m), (batch * heads, n, m)):
        raise RuntimeError(
            f"attn_mask must be ({n}, {m}), queries and keys, or (batch * heads, {n}, {m}) with {batch} * {heads}, got "
            f"{tuple(mask.shape)}"
        )
    if padding is not None and padding.shape != (batch, m):
        raise AssertionError(f"key_padding_mask must be (batch, keys) with {batch} and {m}, got {tuple(padding.shape)}")
    dtypes = [x.dtype for x in (mask, padding) if x is not None]
    if any(dtype is not torch.bool for dtype in dtypes):
        _check_mask_dtype(dtypes, q, need_weights)


def _check_mask_dtype(dtypes: list[torch.dtype], q: Tensor, need_weights: bool) -> None:
    """Raise where PyTorch's layer does not add a mask of one dtype to logits of another."""
    # PyTorch's layer adds both masks, after converting a boolean one to the dtype of the query.
    first, *rest = (q.dtype if dtype is torch.bool else dtype for dtype in dtypes)
    dtype = torch.promote_types(first, rest[0]) if rest else first
    # Autocast converts every floating-point dtype but float64. Without weights, PyTorch's kernel also takes float32.
    autocast = autocast_type(q.device) is not None and dtype is not torch.float64
    if dtype is not q.dtype and not autocast and (need_weights or dtype is not torch.float32):
        raise RuntimeError(
            f"a floating-point mask must have the dtype of the query, {q.dtype}, got {dtype}; convert it with "
            "mask.to(query.dtype)"
        )


def merge_masks(
    padding: Tensor | None, mask: Tensor | None, q: Tensor, extra_keys: int
) -> tuple[Tensor | None, Tensor | None]:
    """Return PyTorch's two masks as one boolean mask (True = may attend) and one bias.

    Args:
        padding: (B, M) ``key_padding_mask``.
        mask: (N, M) or (B * H, N, M) ``attn_mask``.
        q: (B, H, N, D) queries.
        extra_keys: number of appended keys, to which every query may attend.
    """
    if mask is not None and mask.dim() == 3:
        mask = mask.unflatten(0, q.shape[:2])
    allowed: Tensor | None = None
    bias: Tensor | None = None
    for torch_mask in (mask, None if padding is None else padding[:, None, None, :]):
        if torch_mask is None:
            continue
        if extra_keys:
            torch_mask = F.pad(torch_mask, (0, extra_keys))
        if torch_mask.dtype == torch.bool:
            allowed = ~torch_mask if allowed is None else allowed & ~torch_mask
        else:
            bias = torch_mask if bias is None else bias + torch_mask
    return allowed, bias
