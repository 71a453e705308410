"""One query per sequence in C: equal to the formula in float64, for every kernel of a distance and the dot product."""

import copy
import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.attention import Attention, DotProduct, Fractional, KeyValueCache, MultiheadAttention, StudentT
from fna_lightning.attention.kernels import available_kernels
from fna_lightning.attention.kernels.cpu import decode, library
from fna_lightning.attention.kernels.radial_call import per_head

from helpers.attention_cases import TOLERANCE

pytestmark = pytest.mark.skipif(available_kernels()["cpu"] != "ok", reason=f"cpu kernel: {available_kernels()['cpu']}")

ATTENTIONS = [
    Fractional(1.2),
    Fractional(1.2, kappa="vision"),
    Fractional(1.5, kappa=0.3),
    Fractional(2.0, kappa=1.5),
    StudentT(kappa=2.0),
    DotProduct(),
    DotProduct(3.0),
]
every_attention = pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
SIZES = [
    (1, 1, 1, 1, 1),
    (3, 4, 5, 8, 8),
    (2, 2, 300, 33, 17),
    (2, 3, 257, 64, 70),
    (70, 2, 9, 16, 20),
    (1, 2, 1025, 7, 130),
]


def tokens(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def cached(attention: Attention, q: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> Tensor:
    """Return the output of (B, H, 1, D) queries for (P, H, D) keys and (P, H, D_v) values in a cache."""
    out = decode.run_cached(attention, q, torch.cat([k, v], dim=-1), k.size(-1), slots)
    assert out is not None
    return out


def formula(attention: Attention, q: Tensor, k: Tensor, v: Tensor, slots: Tensor) -> Tensor:
    rows = slots.mT.long()  # (B, M)
    return reference(attention)(q.double(), k[rows].transpose(1, 2).double(), v[rows].transpose(1, 2).double())


def reference(attention: Attention) -> Attention:
    """Return the attention computed by the formula."""
    attention = copy.copy(attention)
    attention.kernel = "reference"
    return attention


@every_attention
@pytest.mark.parametrize("sizes", SIZES)
def test_cached_tokens_in_any_row(attention: Attention, sizes: tuple[int, ...]) -> None:
    batch, heads, m, d, width = sizes
    pool = 2 * m + 3
    q, k, v = tokens(batch, heads, 1, d), tokens(pool, heads, d), tokens(pool, heads, width)
    slots = torch.randint(pool, (m, batch), dtype=torch.int32, generator=torch.Generator().manual_seed(0))
    want = formula(attention, q, k, v, slots)
    assert_close(cached(attention, q, k, v, slots).double(), want, rtol=0, atol=TOLERANCE[torch.float32])


@pytest.mark.parametrize("attention", ATTENTIONS[:5], ids=repr)
@pytest.mark.parametrize("sizes", SIZES)
def test_a_single_query_without_a_cache(attention: Attention, sizes: tuple[int, ...]) -> None:
    batch, heads, m, d, width = sizes
    q, k, v = tokens(batch, heads, 1, d), tokens(batch, heads, m, d), tokens(batch, heads, m, width)
    want = reference(attention)(q.double(), k.double(), v.double())
    for offset in (0, m - 1):
        with torch.no_grad():
            out = attention(q, k, v, is_causal=offset == m - 1, offset=offset)
        assert_close(out.double(), want, rtol=0, atol=TOLERANCE[torch.float32])


@pytest.mark.parametrize("attention", ATTENTIONS[:5], ids=repr)
def test_grouped_heads(attention: Attention) -> None:
    q, k, v = tokens(2, 6, 1, 16), tokens(2, 2, 40, 16), tokens(2, 2, 40, 8)
    with torch.no_grad():
        out = attention(q, k, v, enable_gqa=True)
    assert_close(
        out.double(),
        reference(attention)(q.double(), k.double(), v.double(), enable_gqa=True),
        rtol=0,
        atol=TOLERANCE[torch.float32],
    )


@pytest.mark.parametrize(("key_heads", "value_heads"), [(1, 6), (6, 1), (1, 1)])
def test_keys_or_values_that_are_broadcast(key_heads: int, value_heads: int) -> None:
    q, k, v = tokens(2, 6, 1, 16), tokens(2, key_heads, 40, 16), tokens(2, value_heads, 40, 8)
    attention = Fractional(1.2)
    with torch.no_grad():
        out = attention(q, k, v)
    want = reference(attention)(q.double(), k.double(), v.double())
    assert_close(out.double(), want, rtol=0, atol=TOLERANCE[torch.float32])


@every_attention
def test_tokens_far_apart_and_equal_tokens(attention: Attention) -> None:
    q, k, v = 100.0 * tokens(2, 2, 1, 32), 100.0 * tokens(60, 2, 32), tokens(60, 2, 32)
    k[5] = q[0, :, 0]
    slots = torch.arange(60, dtype=torch.int32).view(60, 1).expand(60, 2).contiguous()
    want = formula(attention, q, k, v, slots)
    assert_close(cached(attention, q, k, v, slots).double(), want, rtol=0, atol=1e-5)


@every_attention
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("place", ["query", "key", "value"])
def test_tokens_that_are_not_finite(attention: Attention, value: float, place: str) -> None:
    q, k, v = tokens(2, 2, 1, 20), tokens(30, 2, 20), tokens(30, 2, 20)
    {"query": q[0, 0, 0], "key": k[4, 0], "value": v[4, 0]}[place][3] = value
    slots = torch.arange(30, dtype=torch.int32).view(15, 2)
    out, want = cached(attention, q, k, v, slots), formula(attention, q, k, v, slots)
    assert torch.equal(out.isnan(), want.isnan())
    assert_close(out.double(), want, rtol=0, atol=TOLERANCE[torch.float32], equal_nan=True)


@pytest.mark.parametrize(
    "attention", [Fractional(1.2), DotProduct(), Fractional(1.2, learn=["alpha", "kappa"])], ids=repr
)
def test_a_cache_decodes_reordered_hypotheses_like_the_whole_prefix(attention: Attention) -> None:
    layer = MultiheadAttention(24, 3, attention).eval()
    x, cache = tokens(4, 6, 24), KeyValueCache()
    orders = [torch.tensor([0, 0, 2, 1]), torch.tensor([3, 1]), torch.tensor([1, 0, 0]), None, None, None]
    with torch.no_grad():
        for step, order in enumerate(orders):
            out = layer(x[:, step : step + 1], is_causal=True, cache=cache)
            assert_close(out, layer(x[:, : step + 1], is_causal=True)[:, -1:], rtol=0, atol=1e-5)
            if order is not None:
                cache.reorder(order)
                x = x[order]
    assert len(cache) == 6


def test_gradients_reach_cached_tokens() -> None:
    layer, x = MultiheadAttention(8, 2, Fractional(1.2)), tokens(2, 4, 8).requires_grad_()
    cache = KeyValueCache()
    parts = [layer(x[:, step : step + 1], is_causal=True, cache=cache) for step in range(4)]
    (got,) = torch.autograd.grad(torch.cat(parts, dim=1).square().sum(), x)
    (want,) = torch.autograd.grad(layer(x, is_causal=True).square().sum(), x)
    assert_close(got, want)


def test_a_kernel_that_the_user_named_is_used() -> None:
    for kernel, used in (("cpu", True), ("auto", True), ("chunked", False)):
        attention = Fractional(1.2, kernel=kernel)
        q, pool = tokens(1, 1, 1, 8), tokens(3, 1, 16)
        out = decode.run_cached(attention, q, pool, 8, torch.zeros(2, 1, dtype=torch.int32))
        assert (out is not None) is used


def test_settings_that_the_c_code_does_not_have_are_left_to_others() -> None:
    q, pool, slots = tokens(1, 1, 1, 8), tokens(3, 1, 16), torch.zeros(2, 1, dtype=torch.int32)
    refused = [Fractional(1.2, exclude_self=True), Fractional(1.2, density_power=0.5), DotProduct(qk_norm=True)]
    refused += [DotProduct(ssmax=True), Fractional(1.2, dropout=0.1).train()]
    for attention in refused:
        assert decode.run_cached(attention, q, pool, 8, slots) is None
    for wrong in ((q.double(), pool, 8, slots), (q, pool, 7, slots), (q.expand(2, 1, 1, 8), pool, 8, slots)):
        assert decode.run_cached(Fractional(1.2), *wrong) is None


def test_no_keys_give_zero() -> None:
    empty = Fractional(1.2)(tokens(1, 1, 1, 8), tokens(1, 1, 0, 8), tokens(1, 1, 0, 8))
    assert empty.eq(0).all()


@pytest.mark.parametrize("queries", [1, 5, 16, 17])
@pytest.mark.parametrize("masked", ["no mask", "padding", "holes", "heads"])
def test_queries_of_a_beam_share_the_keys_of_their_sentence(queries: int, masked: str) -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(24, 3, DotProduct()).eval()
    context, x = torch.randn(4, 11, 24), torch.randn(4, queries, 24)
    mask = None
    if masked != "no mask":
        mask = (torch.arange(11) < torch.tensor([11, 1, 6, 10])[:, None])[:, None, None, :]
        if masked == "holes":
            mask = mask.clone()
            mask[..., 0] = torch.tensor([False, True, False, True])[:, None, None]
        if masked == "heads":
            mask = mask.expand(4, 3, 1, 11)
    with torch.no_grad():
        wanted = layer(x, context, mask)
        cache = KeyValueCache()
        for _ in range(2):
            assert_close(layer(x, context, mask, cache=cache), wanted, rtol=1e-5, atol=1e-6)
        rows = torch.tensor([2, 0, 0])
        cache.reorder(rows)
        fewer = None if mask is None else mask[rows]
        out = layer(x[rows], context[rows], fewer, cache=cache)
        assert_close(out, wanted[rows], rtol=1e-5, atol=1e-6)


def test_the_keys_that_a_beam_shares_are_counted() -> None:
    q, k, v = tokens(2, 3, 4, 8), tokens(2, 3, 5, 8), tokens(2, 3, 5, 8)
    counts = torch.tensor([3, 0], dtype=torch.int32)
    out = decode.run_shared(DotProduct(), q, k, v, counts)
    assert out is not None
    assert_close(out[0], DotProduct()(q[:1], k[:1, :, :3], v[:1, :, :3])[0], rtol=1e-5, atol=1e-6)
    assert out[1].eq(0).all()
    assert decode.run_shared(DotProduct(), q, k, v, counts.long()) is None
    assert decode.run_shared(DotProduct(), q, k, v, counts[:1]) is None
    assert decode.run_shared(DotProduct(), q, k[:, :1].expand(2, 3, 5, 8), v[:, :, :4], counts) is None
    assert decode.run_shared(Fractional(1.2), q, k, v, counts) is None


def test_structures_have_the_same_size_as_in_c() -> None:
    # seven sizes, four tensors of a pointer and three strides, four pointers, two 32-bit numbers
    assert library.ctypes.sizeof(library.DecodeArgs) == 8 * (7 + 4 * 4 + 4 + 1)
    assert per_head(1.0, tokens(1, 2, 1, 8)).shape == (2,)
