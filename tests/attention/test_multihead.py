"""Heads, masks, cross-attention and the key-value cache."""

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning.attention import (
    Attention,
    DotProduct,
    Fractional,
    KeyValueCache,
    LinearProjection,
    MultiheadAttention,
    Spherical,
    Uniform,
)

ATTENTIONS = [Fractional(1.2, kappa="vision"), Fractional(2.0), Spherical(), DotProduct(), Uniform()]
every_attention = pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)


def layer_of(attention: Attention, *, tied: bool = False) -> MultiheadAttention:
    torch.manual_seed(0)
    return MultiheadAttention(12, 3, attention, lambda dim, heads: LinearProjection(dim, heads, tied=tied)).double()


def test_dot_product_equals_pytorch() -> None:
    layer = layer_of(DotProduct())
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    weights = torch.cat([layer.projection.query.weight, layer.projection.key.weight, layer.value.weight])
    want, _ = F.multi_head_attention_forward(
        *[x.transpose(0, 1)] * 3, 12, 3, weights, torch.zeros(36, dtype=torch.float64), None, None, False, 0.0,
        layer.out.weight, layer.out.bias, need_weights=False,
    )  # fmt: skip
    assert_close(layer(x), want.transpose(0, 1))


@every_attention
def test_padding_changes_nothing(attention: Attention) -> None:
    layer = layer_of(attention)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    padded = torch.cat([x, torch.randn(2, 4, 12, dtype=torch.float64)], dim=1)
    real = (torch.arange(11) < 7)[None, None, None, :]
    assert_close(layer(padded, mask=real)[:, :7], layer(x))


@every_attention
@pytest.mark.parametrize("steps", [[1] * 7, [3, 1, 3], [7]])
def test_decoding_with_a_cache_equals_decoding_without(attention: Attention, steps: list[int]) -> None:
    layer = layer_of(attention)
    x = torch.randn(2, 7, 12, dtype=torch.float64)
    cache = KeyValueCache()
    parts = [layer(part, is_causal=True, cache=cache) for part in x.split(steps, dim=1)]
    assert_close(torch.cat(parts, dim=1), layer(x, is_causal=True))
    assert len(cache) == 7


@every_attention
def test_cross_attention_computes_the_context_once(attention: Attention) -> None:
    layer = layer_of(attention, tied=True)
    x, context = torch.randn(2, 5, 12, dtype=torch.float64), torch.randn(2, 9, 12, dtype=torch.float64)
    cache = KeyValueCache()
    first = layer(x[:, :2], context, cache=cache)
    keys, _ = cache.tensors
    second = layer(x[:, 2:], context, cache=cache)
    assert cache.tensors[0] is keys
    assert_close(torch.cat([first, second], dim=1), layer(x, context))


def test_reordering_a_cache() -> None:
    layer = layer_of(DotProduct())
    x = torch.randn(2, 4, 12, dtype=torch.float64)
    cache = KeyValueCache()
    layer(x[:, :3], is_causal=True, cache=cache)
    cache.reorder(torch.tensor([1, 0, 1]))
    moved = x[[1, 0, 1]]
    assert_close(layer(moved[:, 3:], is_causal=True, cache=cache), layer(moved, is_causal=True)[:, 3:])


def test_self_exclusion_holds_while_decoding() -> None:
    layer = layer_of(Fractional(1.2, exclude_self=True), tied=True)
    x = torch.randn(2, 5, 12, dtype=torch.float64)
    cache = KeyValueCache()
    parts = [layer(part, is_causal=True, cache=cache) for part in x.split(1, dim=1)]
    assert_close(torch.cat(parts, dim=1), layer(x, is_causal=True))
