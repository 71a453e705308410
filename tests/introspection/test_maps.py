"""``attention_maps``: recorded weights match the layers, and the model is left unchanged."""

import pytest
import torch
from torch import Tensor, nn
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, Fractional, MultiheadAttention
from fna_lightning.graph import rollout
from fna_lightning.introspection.maps import AttentionMap, attention_layers, attention_maps, layer_rollout
from fna_lightning.nn import Encoder, LayerConfig


class Decoder(nn.Module):
    """A causal self-attention layer followed by cross-attention to a source."""

    def __init__(self) -> None:
        super().__init__()
        self.own = MultiheadAttention(8, 2, Fractional(dropout=0.5))
        self.other = MultiheadAttention(8, 2, DotProduct())

    def forward(self, x: Tensor, source: Tensor, mask: Tensor) -> Tensor:
        return self.other(self.own(x, is_causal=True), source, mask)


def test_weights_match_the_layers() -> None:
    torch.manual_seed(0)
    encoder = Encoder(Fractional(), LayerConfig(dim=8, num_heads=2), depth=2)
    x, lengths = torch.randn(3, 6, 8), torch.tensor([6, 4, 2])
    mask = (torch.arange(6) < lengths[:, None])[:, None, None, :]

    def run() -> dict[str, Tensor]:
        encoder(x, mask)
        return {"": lengths}

    maps = attention_maps(encoder, run)
    assert list(maps) == ["layers.0.self_attn", "layers.1.self_attn"] == list(attention_layers(encoder))
    q, k, _ = encoder.layers[0].self_attn.heads(x)
    first = maps["layers.0.self_attn"]
    assert_close(first.weights, Fractional().weights(q, k, mask).detach())
    assert first.is_self
    assert first.lengths.equal(lengths)
    assert not first.weights.requires_grad
    assert first.weights[2, :, :, 2:].eq(0).all()


def test_self_and_cross_attention_of_a_decoder() -> None:
    torch.manual_seed(0)
    decoder = Decoder()
    x, source = torch.randn(2, 4, 8), torch.randn(2, 7, 8)
    mask = (torch.arange(7) < torch.tensor([7, 3])[:, None])[:, None, None, :]

    def run() -> dict[str, Tensor]:
        decoder(x, source, mask)
        return {"own": torch.tensor([4, 2]), "other": torch.tensor([4, 2])}

    maps = attention_maps(decoder, run)
    assert maps["own"].weights.shape == (2, 2, 4, 4)
    assert maps["own"].weights.triu(1).eq(0).all()
    assert maps["other"].weights.shape == (2, 2, 4, 7)
    assert not maps["other"].is_self
    assert_close(maps["own"].weights.sum(-1), torch.ones(2, 2, 4))


def test_the_model_is_left_unchanged() -> None:
    decoder = Decoder()
    decoder.other.eval()
    x = torch.randn(1, 4, 8)
    state = torch.get_rng_state()
    maps = attention_maps(decoder, lambda: (decoder(x, x, None), None)[1], ["own"])
    assert torch.get_rng_state().equal(state)
    assert list(maps) == ["own"]
    assert maps["own"].lengths is None
    assert decoder.own.training
    assert not decoder.other.training
    assert not decoder.own._forward_pre_hooks


def test_invalid_arguments() -> None:
    decoder = Decoder()
    x = torch.randn(2, 4, 8)
    with pytest.raises(ValueError, match="no attention layer 'missing' in this model; it has own, other"):
        attention_maps(decoder, lambda: None, ["missing"])

    def run() -> dict[str, Tensor]:
        decoder(x, x, None)
        return {"": torch.tensor([4])}

    with pytest.raises(ValueError, match=r"lengths of own must be \(2,\), one for each sequence, got \(1,\)"):
        attention_maps(decoder, run)


def test_the_rollout_of_a_model_averages_heads_and_leaves_out_cross_attention() -> None:
    torch.manual_seed(0)
    lengths = torch.tensor([5, 3])
    weights = torch.zeros(2, 2, 3, 5, 5, dtype=torch.float64)
    weights[:, 0] = torch.randn(2, 3, 5, 5).softmax(-1)
    weights[:, 1, :, :3, :3] = torch.randn(2, 3, 3, 3).softmax(-1)
    cross = AttentionMap(torch.rand(2, 3, 5, 7), lengths, is_self=False)
    maps = {
        "layers.0.self_attn": AttentionMap(weights[0], lengths, is_self=True),
        "layers.0.cross_attn": cross,
        "layers.1.self_attn": AttentionMap(weights[1], lengths, is_self=True),
    }
    result = layer_rollout(maps)
    assert result.shape == (2, 5, 5)
    assert_close(result, rollout([weights[0].mean(1), weights[1].mean(1)], lengths))
    assert_close(layer_rollout(maps, residual=0.0)[0], weights[1, 0].mean(0) @ weights[0, 0].mean(0))
    with pytest.raises(ValueError, match="at least one self-attention layer, got 0"):
        layer_rollout({"cross": cross})
