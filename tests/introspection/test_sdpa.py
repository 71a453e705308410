"""Attention weights of models that call PyTorch's scaled_dot_product_attention."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, MultiheadAttention
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.introspection.sdpa import sdpa_weights


def maps_of(model: nn.Module, *args: Any, **kwargs: Any) -> dict[str, AttentionMap]:
    return attention_maps(model, lambda: (model(*args, **kwargs), None)[1])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"is_causal": True},
        {"scale": 0.3},
        {"attn_mask": torch.rand(5, 7, generator=torch.Generator().manual_seed(1)) > 0.3},
        {"attn_mask": torch.randn(2, 1, 5, 7, generator=torch.Generator().manual_seed(1))},
        {"attn_mask": torch.zeros(5, 7, dtype=torch.bool)},
    ],
    ids=["plain", "causal", "scale", "boolean mask", "float mask", "nothing allowed"],
)
@pytest.mark.parametrize("leading", [(2, 3), (2,), (4, 2, 3)], ids=str)
def test_weights_reproduce_the_output(options: dict[str, Any], leading: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(*leading, 5, 8), torch.randn(*leading, 7, 8), torch.randn(*leading, 7, 6)
    if len(leading) != 2 and getattr(options.get("attn_mask"), "ndim", 2) == 4:
        options = {"attn_mask": options["attn_mask"][0, 0]}
    weights = sdpa_weights(q, k, v, **options)
    assert weights.ndim == 4
    expected = F.scaled_dot_product_attention(q, k, v, **options)
    assert_close((weights.reshape(*leading, 5, 7) @ v).nan_to_num(), expected.nan_to_num())


def test_grouped_heads() -> None:
    torch.manual_seed(0)
    q, k, v = torch.randn(2, 6, 5, 8), torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    weights = sdpa_weights(q, k, v, is_causal=True, enable_gqa=True)
    expected = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
    assert_close(weights @ v.repeat_interleave(3, dim=1), expected)


def test_half_precision_rows_sum_to_one() -> None:
    q = torch.randn(1, 2, 50, 8, dtype=torch.bfloat16)
    assert_close(sdpa_weights(q, q, q).sum(dim=-1), torch.ones(1, 2, 50))


@pytest.mark.parametrize("batch_first", [True, False])
def test_transformer_encoder_of_pytorch(batch_first: bool) -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=batch_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=batch_first).eval()
    x, lengths = torch.randn(3, 6, 8), torch.tensor([6, 4, 2])
    padding = torch.arange(6) >= lengths[:, None]
    inputs = x if batch_first else x.transpose(0, 1)
    outputs = []

    def run() -> dict[str, Tensor]:
        outputs.append(encoder(inputs, src_key_padding_mask=padding))
        return {"": lengths}

    maps = attention_maps(encoder, run)
    assert list(maps) == ["layers.0.self_attn", "layers.1.self_attn"]
    first = maps["layers.0.self_attn"]
    _, expected = encoder.layers[0].self_attn(
        inputs, inputs, inputs, key_padding_mask=padding, average_attn_weights=False
    )
    assert_close(first.weights, expected.detach())
    assert first.is_self
    assert first.lengths.equal(lengths)
    assert first.weights[2, :, :, 2:].eq(0).all()
    # the output does not change, and neither does the model
    with torch.no_grad():
        result = encoder(inputs, src_key_padding_mask=padding)
    real = ~padding if batch_first else ~padding.T
    assert_close(outputs[0][real], result[real])
    assert torch.backends.mha.get_fastpath_enabled()
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in encoder.modules())


def test_transformer_decoder_of_pytorch() -> None:
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, batch_first=True), 1)
    x, source = torch.randn(2, 5, 8), torch.randn(2, 5, 8)
    causal = nn.Transformer.generate_square_subsequent_mask(5)
    maps = maps_of(decoder, x, source, tgt_mask=causal, tgt_is_causal=True)
    assert list(maps) == ["layers.0.self_attn", "layers.0.multihead_attn"]
    assert maps["layers.0.self_attn"].weights.triu(1).eq(0).all()
    assert maps["layers.0.self_attn"].is_self
    assert not maps["layers.0.multihead_attn"].is_self


@pytest.mark.parametrize(
    ("need_weights", "averaged", "shape"), [(False, True, None), (True, True, 3), (True, False, 4)]
)
def test_the_layer_returns_what_its_caller_asks_for(need_weights: bool, averaged: bool, shape: int | None) -> None:
    layer = nn.MultiheadAttention(8, 2, batch_first=True).eval()
    x = torch.randn(2, 5, 8)
    results = []

    def run() -> None:
        results.append(layer(x, x, x, need_weights=need_weights, average_attn_weights=averaged))

    attention_maps(layer, run)
    output, weights = layer(x, x, x, need_weights=need_weights, average_attn_weights=averaged)
    assert_close(results[0][0], output)
    if shape is None:
        assert results[0][1] is weights is None
    else:
        assert results[0][1].ndim == shape
        assert_close(results[0][1], weights)


class Mixed(nn.Module):
    """One layer of this package and one of PyTorch."""

    def __init__(self) -> None:
        super().__init__()
        # the kernel "sdpa" calls scaled_dot_product_attention inside the layer
        self.own = MultiheadAttention(8, 2, DotProduct(kernel="sdpa"))
        self.other = nn.MultiheadAttention(8, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.own(x)
        return self.other(x, x, x, need_weights=False)[0]


def test_a_model_with_both_kinds_of_layers_returns_both_once() -> None:
    model, x = Mixed(), torch.randn(2, 5, 8)
    maps = maps_of(model, x)
    assert list(maps) == ["own", "other"]
    assert all(layer_map.weights.shape == (2, 2, 5, 5) for layer_map in maps.values())
    assert list(attention_maps(model, lambda: (model(x), None)[1], ["other"])) == ["other"]
    assert list(attention_maps(model, lambda: (model(x), None)[1], ["own"])) == ["own"]
    with pytest.raises(ValueError, match="no attention layer 'missing' in this model; it has own, other"):
        attention_maps(model, lambda: (model(x), None)[1], ["missing"])


@pytest.mark.filterwarnings("error")
def test_an_error_of_the_model_leaves_it_unchanged() -> None:
    model = Mixed()
    with pytest.raises(RuntimeError):
        maps_of(model, torch.randn(2, 5, 9))
    assert not any(module._forward_pre_hooks or module._forward_hooks for module in model.modules())
    assert list(maps_of(model, torch.randn(2, 5, 8))) == ["own", "other"]


def test_a_vision_transformer_of_timm() -> None:
    timm = pytest.importorskip("timm")
    torch.manual_seed(0)
    model = timm.create_model("vit_tiny_patch16_224", img_size=32, embed_dim=24, depth=2, num_heads=3, num_classes=2)
    maps = maps_of(model, torch.randn(2, 3, 32, 32))
    assert list(maps) == ["blocks.0.attn", "blocks.1.attn"]
    for layer_map in maps.values():
        assert layer_map.weights.shape == (2, 3, 5, 5)
        assert layer_map.is_self
        assert_close(layer_map.weights.sum(dim=-1), torch.ones(2, 3, 5))


def test_a_bert_of_transformers_gives_its_own_attentions() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    model = transformers.BertModel(transformers.BertConfig(vocab_size=50, **sizes)).eval()
    tokens, lengths = torch.randint(50, (3, 6)), torch.tensor([6, 4, 2])
    mask = (torch.arange(6) < lengths[:, None]).long()

    def run() -> dict[str, Tensor]:
        model(input_ids=tokens, attention_mask=mask)
        return {"": lengths}

    maps = attention_maps(model, run)
    assert list(maps) == ["encoder.layer.0.attention.self", "encoder.layer.1.attention.self"]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        expected = model(input_ids=tokens, attention_mask=mask, output_attentions=True).attentions
    for layer_map, weights in zip(maps.values(), expected, strict=True):
        assert_close(layer_map.weights, weights)
        assert layer_map.is_self
        assert layer_map.lengths.equal(lengths)


def test_cross_attention_of_transformers_is_marked() -> None:
    transformers = pytest.importorskip("transformers")
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    config = transformers.BertConfig(vocab_size=50, is_decoder=True, add_cross_attention=True, **sizes)
    model = transformers.BertModel(config)
    # source and target have the same length, so that the shapes do not tell
    maps = maps_of(model, input_ids=torch.randint(50, (2, 5)), encoder_hidden_states=torch.randn(2, 5, 16))
    assert [layer_map.is_self for layer_map in maps.values()] == [True, False]
    assert next(iter(maps.values())).weights.triu(1).eq(0).all()
