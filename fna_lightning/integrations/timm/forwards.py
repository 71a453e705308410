"""Forward passes of the timm layers that do not call ``F.scaled_dot_product_attention``, with an attention core.

With dot-product attention in the core, each of them equals timm's own forward pass. Shapes: B batch, H heads, N tokens,
D width of a head, C channels.
"""

import math
from collections.abc import Callable
from typing import Any

import torch
from timm.models.mvitv2 import cal_rel_pos_type, reshape_post_pool, reshape_pre_pool
from torch import Tensor
from torch.nn import functional as F

Forward = Callable[..., Any]


def _dropout(layer: Any) -> float:
    return layer.attn_drop.p if layer.training else 0.0


def _split_heads(tokens: Tensor, num_heads: int) -> Tensor:
    """Map (B, N, C) to (B, H, N, D)."""
    return tokens.unflatten(-1, (num_heads, -1)).transpose(1, 2)


def _join_heads(heads: Tensor) -> Tensor:
    """Map (B, H, N, D) to (B, N, C)."""
    return heads.transpose(1, 2).flatten(2)


def _split_map(maps: Tensor, num_heads: int) -> Tensor:
    """Map (B, C, height, width) to (B, H, N, D)."""
    return maps.flatten(2).unflatten(1, (num_heads, -1)).transpose(2, 3)


def _join_map(heads: Tensor, size: Any) -> Tensor:
    """Map (B, H, N, D) to (B, C, height, width)."""
    return heads.transpose(2, 3).flatten(1, 2).unflatten(2, tuple(size))


def _projected(layer: Any, out: Tensor) -> Tensor:
    return layer.proj_drop(layer.proj(_join_heads(out)))


def _offset_bias(layer: Any) -> Tensor:
    """Return the (H, N, M) learned bias of each offset; timm's own method caches it in evaluation mode."""
    return layer.attention_biases[:, layer.attention_bias_idxs]


def class_token(self: Any, x: Tensor) -> Tensor:
    """The first token attends to all tokens (CrossViT)."""
    q, k, v = (_split_heads(part, self.num_heads) for part in (self.wq(x[:, :1]), self.wk(x), self.wv(x)))
    return _projected(self, self.fna(q, k, v, dropout=_dropout(self), is_self=False))


def volo_class_token(self: Any, x: Tensor) -> Tensor:
    """The first token attends to all tokens (VOLO)."""
    q = _split_heads(self.q(x[:, :1]), self.num_heads)
    k, v = (_split_heads(part, self.num_heads) for part in self.kv(x).chunk(2, dim=-1))
    return _projected(self, self.fna(q, k, v, dropout=_dropout(self), is_self=False))


def packed(self: Any, x: Tensor) -> Tensor:
    """Self-attention with one projection for queries, keys and values (ConViT)."""
    q, k, v = (_split_heads(part, self.num_heads) for part in self.qkv(x).chunk(3, dim=-1))
    return _projected(self, self.fna(q, k, v, dropout=_dropout(self), is_self=True))


def narrow_queries(self: Any, x: Tensor) -> Tensor:
    """Self-attention whose queries and keys may be narrower than the values (TNT)."""
    q, k = (_split_heads(part, self.num_heads) for part in self.qk(x).chunk(2, dim=-1))
    out = self.fna(q, k, _split_heads(self.v(x), self.num_heads), dropout=_dropout(self), is_self=True)
    return _projected(self, out)


def global_query(self: Any, x: Tensor, q_global: Tensor | None = None) -> Tensor:
    """Attention in a window, with queries of the window or of the whole image (GC ViT)."""
    is_global = self.use_global and q_global is not None
    parts = [_split_heads(part, self.num_heads) for part in self.qkv(x).chunk(2 if is_global else 3, dim=-1)]
    if is_global:
        assert q_global is not None
        # Every window of an image has the same queries, which are stored as a map of window size.
        queries = q_global.repeat(len(x) // len(q_global), 1, 1, 1).reshape(*x.shape)
        parts.insert(0, _split_heads(queries, self.num_heads))
    bias = self.rel_pos.get_bias()
    return _projected(self, self.fna(*parts, bias=bias, dropout=_dropout(self), is_self=not is_global))


def biased(self: Any, x: Tensor) -> Tensor:
    """Self-attention with a learned bias for each offset (LeViT, EfficientFormer)."""
    is_map = x.dim() == 4
    heads = (_split_map if is_map else _split_heads)(self.qkv(x), self.num_heads)
    q, k, v = heads.split([self.key_dim, self.key_dim, self.val_dim], dim=-1)
    out = self.fna(q, k, v, bias=_offset_bias(self), is_self=True)
    return self.proj(_join_map(out, x.shape[2:]) if is_map else _join_heads(out))


def biased_downsampling(self: Any, x: Tensor) -> Tensor:
    """A subset of the tokens attends to all tokens, with a learned bias for each offset (LeViT)."""
    is_map = x.dim() == 4
    split = _split_map if is_map else _split_heads
    queries = self.q(x)
    k, v = split(self.kv(x), self.num_heads).split([self.key_dim, self.val_dim], dim=-1)
    bias = _offset_bias(self)
    out = self.fna(split(queries, self.num_heads), k, v, bias=bias, is_self=False)
    return self.proj(_join_map(out, queries.shape[2:]) if is_map else _join_heads(out))


def local_downsampling(self: Any, x: Tensor) -> Tensor:
    """Downsampling attention with a bias and a convolution beside it (EfficientFormerV2)."""
    values = self.v(x)
    q, k, v = (_split_map(part, self.num_heads) for part in (self.q(x), self.k(x), values))
    out = self.fna(q, k, v, bias=_offset_bias(self), is_self=False)
    return self.proj(self.act(_join_map(out, self.resolution2) + self.v_local(values)))


def single_head(self: Any, x: Tensor) -> Tensor:
    """Self-attention with one head in a part of the channels (SHViT)."""
    attended, unchanged = x.split([self.pdim, self.dim - self.pdim], dim=1)
    projected = _split_map(self.qkv(self.pre_norm(attended)), 1)
    q, k, v = projected.split([self.qk_dim, self.qk_dim, self.pdim], dim=-1)
    out = _join_map(self.fna(q, k, v, is_self=True), x.shape[2:])
    return self.proj(torch.cat([out, unchanged], dim=1))


def _cosine(self: Any, x: Tensor, qkv: Tensor, bias: Tensor, mask: Tensor | None) -> Tensor:
    """Attention with logits exp(logit_scale) cos(q, k) + bias, in windows of which each has its own mask.

    The learned factor becomes the length of queries and keys: their dot products with the default scale are the logits.
    """
    q, k, v = (_split_heads(part, self.num_heads) for part in qkv.chunk(3, dim=-1))
    factor = self.logit_scale.reshape(-1, 1, 1).clamp(max=math.log(100.0)).exp()
    length = (factor * math.sqrt(q.size(-1))).sqrt()
    q, k = F.normalize(q, dim=-1) * length, F.normalize(k, dim=-1) * length
    if mask is not None:
        # One mask for each window of an image; the batch axis holds the windows of all images.
        bias = bias + mask[:, None].repeat(len(x) // len(mask), 1, 1, 1)
    return _projected(self, self.fna(q.type_as(v), k.type_as(v), v, bias=bias, dropout=_dropout(self), is_self=True))


def cosine_window(self: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Cosine attention in a window (Swin Transformer V2)."""
    qkv = self.qkv(x)
    if self.q_bias is not None:
        qkv = qkv + torch.cat([self.q_bias, self.k_bias, self.v_bias])
    area = self.window_size[0] * self.window_size[1]
    table = self.cpb_mlp(self.relative_coords_table).flatten(0, -2)
    bias = table[self.relative_position_index.flatten()].unflatten(0, (area, area)).permute(2, 0, 1)
    return _cosine(self, x, qkv, 16 * bias.sigmoid(), mask)


def cosine_window_cr(self: Any, x: Tensor, mask: Tensor | None = None) -> Tensor:
    """Cosine attention in a window (the second Swin Transformer V2 of timm)."""
    return _cosine(self, x, self.qkv(x), self._relative_positional_encodings(), mask)


def _pooled(self: Any, name: str, heads: Tensor, size: Any) -> tuple[Tensor, Any]:
    """Return pooled and normalized heads with the new size of their map; ``name`` is q, k or v."""
    pool, norm = getattr(self, f"pool_{name}"), getattr(self, f"norm_{name}")
    if pool is not None:
        maps, class_tokens = reshape_pre_pool(heads, size, self.has_cls_token)
        heads, size = reshape_post_pool(pool(maps), self.num_heads, class_tokens)
    return (heads if norm is None else norm(heads)), size


def pooled(self: Any, x: Tensor, feat_size: Any) -> tuple[Tensor, Any]:
    """Attention between pooled maps, with position logits that depend on the query (MViTv2)."""
    parts = (_split_heads(part, self.num_heads) for part in self.qkv(x).chunk(3, dim=-1))
    (q, q_size), (k, k_size), (v, _) = (
        _pooled(self, name, part, feat_size) for name, part in zip("qkv", parts, strict=True)
    )
    bias = None
    if self.rel_pos_type == "spatial":
        zeros = q.new_zeros(*q.shape[:-1], k.size(-2))
        bias = cal_rel_pos_type(zeros, q, self.has_cls_token, q_size, k_size, self.rel_pos_h, self.rel_pos_w)
    out = self.fna(q, k, v, bias=bias, is_self=self.pool_q is None and self.pool_k is None)
    if self.residual_pooling:
        out = out + q
    return self.proj(_join_heads(out)), q_size


def _position_logits(self: Any, q: Tensor) -> Tensor:
    """Return the logits of relative positions for queries with the heads in the batch axis."""
    logits = self.pos_embed(q)
    return logits * self.scale if self.scale_pos_embed else logits


def bottleneck(self: Any, x: Tensor) -> Tensor:
    """Self-attention of a map, with position logits that depend on the query (BoTNet)."""
    parts = self.qkv(x).split([self.dim_out_qk, self.dim_out_qk, self.dim_out_v], dim=1)
    q, k, v = (_split_map(part, self.num_heads) for part in parts)
    bias = _position_logits(self, q.flatten(0, 1)).unflatten(0, (-1, self.num_heads))
    return self.pool(_join_map(self.fna(q, k, v, bias=bias, is_self=True), x.shape[2:]))


def halo(self: Any, x: Tensor) -> Tensor:
    """The pixels of a block attend to the block and its surroundings (HaloNet)."""
    rows, columns = x.size(2) // self.block_size, x.size(3) // self.block_size
    side = self.block_size_ds
    # (B, H, D, rows, side, columns, side) to (B * rows * columns, H, side * side, D)
    queries = self.q(x).unflatten(3, (columns, side)).unflatten(2, (rows, side)).unflatten(1, (self.num_heads, -1))
    q = queries.permute(0, 3, 5, 1, 4, 6, 2).flatten(4, 5).flatten(0, 2)
    surroundings = F.pad(self.kv(x), [self.halo_size] * 4)
    for axis in (2, 3):
        surroundings = surroundings.unfold(axis, self.win_size, self.block_size)
    # (B, H, D, rows, columns, window, window) to (B * rows * columns, H, window * window, D)
    windows = surroundings.unflatten(1, (self.num_heads, -1)).permute(0, 3, 4, 1, 5, 6, 2)
    k, v = windows.flatten(4, 5).flatten(0, 2).split([self.dim_head_qk, self.dim_head_v], dim=-1)
    bias = _position_logits(self, q.transpose(0, 1).contiguous()).transpose(0, 1)
    out = self.fna(q, k, v, bias=bias, is_self=False)
    out = out.unflatten(0, (-1, rows, columns)).unflatten(4, (side, side)).permute(0, 3, 6, 1, 4, 2, 5)
    return self.pool(out.flatten(5, 6).flatten(3, 4).flatten(1, 2))


FORWARDS: dict[str, Forward] = {
    "timm.layers.bottleneck_attn.BottleneckAttn": bottleneck,
    "timm.layers.halo_attn.HaloAttn": halo,
    "timm.models.convit.MHSA": packed,
    "timm.models.crossvit.CrossAttention": class_token,
    "timm.models.efficientformer.Attention": biased,
    "timm.models.efficientformer_v2.Attention2dDownsample": local_downsampling,
    "timm.models.gcvit.WindowAttentionGlobal": global_query,
    "timm.models.levit.Attention": biased,
    "timm.models.levit.AttentionDownsample": biased_downsampling,
    "timm.models.mvitv2.MultiScaleAttention": pooled,
    "timm.models.shvit.SHSA": single_head,
    "timm.models.swin_transformer_v2.WindowAttention": cosine_window,
    "timm.models.swin_transformer_v2_cr.WindowMultiHeadAttention": cosine_window_cr,
    "timm.models.tnt.Attention": narrow_queries,
    "timm.models.volo.ClassAttention": volo_class_token,
}
