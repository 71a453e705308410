"""Encoder, embedding, positions and pooling."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, Uniform
from fna_lightning.nn import Embedding, Encoder, EncoderConfig, LayerConfig, Pooling, Positions


@pytest.mark.parametrize("pre_norm", [False, True])
@pytest.mark.parametrize("attention", [Fractional(), Fractional(2.0), Spherical(), DotProduct(), Uniform()], ids=repr)
def test_padding_does_not_change_the_output(attention: Attention, pre_norm: bool) -> None:
    torch.manual_seed(0)
    config = EncoderConfig(dim=16, depth=2, num_heads=2, ffn_dim=24, pre_norm=pre_norm, on_sphere=True)
    encoder = config(attention).eval().double()
    x = torch.randn(3, 6, 16, dtype=torch.float64)
    padded = torch.cat([x, torch.randn(3, 5, 16, dtype=torch.float64)], dim=1)
    real = torch.arange(11) < 6
    assert_close(encoder(padded, real[None, None, None, :])[:, :6], encoder(x))


def test_layers_share_one_attention_and_nothing_else() -> None:
    attention = Fractional()
    encoder = Encoder(attention, LayerConfig(dim=8), depth=3)
    assert all(layer.self_attn.attention is attention for layer in encoder.layers)
    assert encoder.layers[0].self_attn.value.weight is not encoder.layers[1].self_attn.value.weight


def test_weights_load_under_another_attention() -> None:
    torch.manual_seed(0)
    config = EncoderConfig(dim=8, depth=2)
    fractional, dot_product = config(Fractional()), config(DotProduct())
    assert fractional.state_dict().keys() == dot_product.state_dict().keys()
    dot_product.load_state_dict(fractional.state_dict())


def test_depth_zero_is_an_error() -> None:
    with pytest.raises(ValueError, match="depth must be at least 1, got 0"):
        Encoder(DotProduct(), depth=0)


@pytest.mark.parametrize("kind", ["mean", "max"])
def test_pooling_ignores_padding(kind: str) -> None:
    x = torch.randn(2, 5, 3)
    real = torch.tensor([[True, True, True, False, False], [False] * 5])
    pooled = Pooling(kind)(x, real)
    want = x[0, :3].mean(0) if kind == "mean" else x[0, :3].amax(0)
    assert_close(pooled[0], want)
    assert pooled[1].eq(0).all()
    assert_close(Pooling(kind)(x[:1, :3]), pooled[:1])
    assert_close(Pooling("cls")(x, real), x[:, 0])


def test_max_all_includes_padding() -> None:
    x = torch.zeros(1, 3, 2)
    x[0, 2] = 5.0  # padding
    real = torch.tensor([[True, True, False]])
    assert_close(Pooling("max_all")(x, real), torch.full((1, 2), 5.0))
    assert_close(Pooling("max")(x, real), torch.zeros(1, 2))


def test_sinusoids() -> None:
    table = Positions("sinusoidal", 50, 6).table
    assert_close(table[7, 2], torch.sin(torch.tensor(7.0 / 10_000 ** (2 / 6))))
    assert_close(table[7, 3], torch.cos(torch.tensor(7.0 / 10_000 ** (2 / 6))))
    assert Positions("sinusoidal", 5, 3).table.shape == (5, 3)


def test_positions_with_an_offset() -> None:
    positions = Positions("learned", 10, 4)
    x = torch.randn(2, 6, 4)
    assert_close(positions(x[:, 4:], start=4), positions(x)[:, 4:])


def test_which_positions_have_parameters() -> None:
    assert len(list(Positions("learned", 4, 2).parameters())) == 1
    assert not list(Positions("random", 4, 2).parameters())
    assert "table" in Positions("random", 4, 2).state_dict()
    assert not Positions("sinusoidal", 4, 2).state_dict()
    x = torch.randn(1, 99, 2)
    assert Positions("none", 4, 2)(x) is x


def test_sequence_longer_than_the_positions() -> None:
    with pytest.raises(ValueError, match="11 tokens is longer than the 10 positions"):
        Embedding(5, 4, max_length=10)(torch.zeros(1, 11, dtype=torch.long))


@pytest.mark.parametrize(("make", "message"), [
    (lambda: Positions("rotary", 4, 2), "unknown positions 'rotary'; choose one of learned"),
    (lambda: Pooling("sum"), "unknown pooling 'sum'; choose one of mean, max, max_all, cls"),
])  # fmt: skip
def test_unknown_names(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


def test_tokens_on_the_sphere_have_unit_length() -> None:
    x = Embedding(9, 6, on_sphere=True, dropout=0.0)(torch.arange(1, 9)[None])
    assert_close(x.norm(dim=-1), torch.ones(1, 8))
