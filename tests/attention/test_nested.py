"""Nested tensors: sequences of different lengths, each attended as if it were alone."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fna_lightning import attention_weights, fractional_attention
from fna_lightning.attention import Fractional, FractionalMultiheadAttention

H, D, E = 4, 8, 16
LENGTHS, KEY_LENGTHS = (3, 5, 1), (2, 6, 4)
pytestmark = pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors is in prototype stage")
LAYOUTS = pytest.mark.parametrize("layout", [torch.jagged, torch.strided], ids=str)


def sequences(lengths: tuple[int, ...], *shape: int, seed: int = 0) -> list[Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(n, *shape, dtype=torch.float64, generator=random, requires_grad=True) for n in lengths]


def nest(parts: list[Tensor], layout: torch.layout) -> Tensor:
    return torch.nested.as_nested_tensor(parts, layout=layout)


def heads(x: Tensor) -> Tensor:
    return x.transpose(-3, -2)


CALLS: list[dict[str, Any]] = [
    {},
    {"is_causal": True},
    {"attn_mask": torch.arange(6.0) * torch.arange(5.0)[:, None] % 3.0},
    {"attn_mask": (torch.arange(6) + torch.arange(5)[:, None]) % 3 < 2},
    {"alpha": torch.tensor([1.1, 1.3, 1.5, 1.7])},
]


@LAYOUTS
@pytest.mark.parametrize("call", CALLS, ids=lambda call: "+".join(call) or "plain")
def test_each_sequence_is_attended_alone(call: dict[str, Any], layout: torch.layout) -> None:
    queries, keys, values = (
        sequences(lengths, H, D, seed=seed) for seed, lengths in enumerate((LENGTHS, KEY_LENGTHS, KEY_LENGTHS))
    )
    q, k, v = (nest(parts, layout).transpose(1, 2) for parts in (queries, keys, values))
    out, lse = fractional_attention(q, k, v, return_lse=True, **call)
    assert out.is_nested
    assert out.layout == layout
    weights = attention_weights(q, k, **call)
    assert weights.shape == (3, H, 5, 6)
    inputs = [*queries, *keys, *values]
    want_sum = torch.zeros((), dtype=torch.float64)
    for i, (got, got_lse) in enumerate(zip(out.unbind(), lse.unbind(), strict=True)):
        n, m = LENGTHS[i], KEY_LENGTHS[i]
        single = dict(call, attn_mask=call["attn_mask"][:n, :m]) if "attn_mask" in call else call
        want, want_lse = fractional_attention(
            heads(queries[i]), heads(keys[i]), heads(values[i]), return_lse=True, **single
        )
        assert_close(got, want)
        assert_close(got_lse, want_lse)
        assert_close(weights[i, :, :n, :m], attention_weights(heads(queries[i]), heads(keys[i]), **single))
        assert weights[i, :, n:].eq(0).all()
        assert weights[i, :, :, m:].eq(0).all()
        want_sum = want_sum + want.square().sum() + want_lse.sin().sum()
    got_sum = sum(x.square().sum() for x in out.unbind()) + sum(x.sin().sum() for x in lse.unbind())
    for got, want in zip(torch.autograd.grad(got_sum, inputs), torch.autograd.grad(want_sum, inputs), strict=True):
        assert_close(got, want)


@LAYOUTS
def test_dense_queries_or_keys_and_tokens_without_heads(layout: torch.layout) -> None:
    queries, keys = sequences(LENGTHS, D), sequences(KEY_LENGTHS, D, seed=1)
    q, k = nest(queries, layout), nest(keys, layout)
    dense = torch.randn(3, 2, D, dtype=torch.float64)
    nested_out, dense_out = fractional_attention(q, dense, dense), fractional_attention(dense, k, k)
    assert nested_out.is_nested
    assert not dense_out.is_nested
    for i in range(3):
        assert_close(nested_out.unbind()[i], fractional_attention(queries[i], dense[i], dense[i]))
        assert_close(dense_out[i], fractional_attention(dense[i], keys[i], keys[i]))


def test_the_output_of_a_jagged_tensor_can_be_added_to_it() -> None:
    x = nest(sequences(LENGTHS, H, D), torch.jagged)
    q = x.transpose(1, 2)
    assert (x + fractional_attention(q, q, q).transpose(1, 2)).shape == x.shape


def test_lengths_that_do_not_match() -> None:
    q, k = (nest(sequences(lengths, H, D), torch.jagged) for lengths in (LENGTHS, KEY_LENGTHS))
    with pytest.raises(ValueError, match=r"k and v must have the same lengths, got \[2, 6, 4\] and \[3, 5, 1\]"):
        fractional_attention(q.transpose(1, 2), k.transpose(1, 2), q.transpose(1, 2))
    with pytest.raises(ValueError, match="k and v must both be nested or both be dense"):
        fractional_attention(q.transpose(1, 2), k.transpose(1, 2), torch.randn(3, H, 6, D))
    with pytest.raises(
        ValueError, match=r"axis -2 of the nested tensor q must be the tokens.*pass q.transpose\(1, 2\)"
    ):
        fractional_attention(q, k, k)
    strided = nest(sequences(LENGTHS, H, D), torch.strided)
    with pytest.raises(ValueError, match="the nested tensor q may differ along axis -2, the tokens, only"):
        fractional_attention(strided, strided, strided)
    with pytest.raises(TypeError, match="dense tensors, got a nested one; use fractional_attention"):
        Fractional()(q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2))


@LAYOUTS
@pytest.mark.parametrize("training", [True, False])
def test_the_layer_takes_nested_tensors(layout: torch.layout, training: bool) -> None:
    torch.manual_seed(0)
    layer = FractionalMultiheadAttention(E, H, batch_first=True, dtype=torch.float64).train(training)
    queries, keys = sequences(LENGTHS, E), sequences(KEY_LENGTHS, E, seed=1)
    q, k = nest(queries, layout), nest(keys, layout)
    out, weights = layer(q, k, k)
    single = [layer(a, b, b) for a, b in zip(queries, keys, strict=True)]
    for i, (part, (want, want_weights)) in enumerate(zip(out.unbind(), single, strict=True)):
        assert_close(part, want)
        assert_close(weights[i, : LENGTHS[i], : KEY_LENGTHS[i]], want_weights)
    inputs = [*queries, *keys, *layer.parameters()]
    got = torch.autograd.grad(sum(x.square().sum() for x in out.unbind()), inputs)
    want = torch.autograd.grad(sum(x.square().sum() for x, _ in single), inputs)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b)
    assert layer(q, q, q, need_weights=False)[0].layout == layout


def test_what_the_layer_refuses_with_nested_tensors() -> None:
    x = nest(sequences(LENGTHS, E), torch.jagged).float()
    with pytest.raises(AssertionError, match="key_padding_mask must be None"):
        FractionalMultiheadAttention(E, H, batch_first=True)(x, x, x, torch.zeros(3, 5, dtype=torch.bool))
    with pytest.raises(AssertionError, match="nested tensors need batch_first=True"):
        FractionalMultiheadAttention(E, H)(x, x, x)


@pytest.mark.parametrize("training", [True, False])
def test_an_encoder_takes_jagged_tokens(training: bool) -> None:
    torch.manual_seed(0)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(E, H, 32, 0.0, batch_first=True), 2).double()
    for layer in encoder.layers:
        layer.self_attn = FractionalMultiheadAttention(E, H, batch_first=True, dtype=torch.float64)
    encoder.train(training)
    parts = sequences(LENGTHS, E)
    out = encoder(nest(parts, torch.jagged))
    for got, part in zip(out.unbind(), parts, strict=True):
        assert_close(got, encoder(part))
