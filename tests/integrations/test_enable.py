"""``fna_lightning.enable``: one function for transformers, timm and plain PyTorch."""

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.testing import assert_close

import fna_lightning
from fna_lightning import enable
from fna_lightning.attention import DotProduct, FractionalMultiheadAttention
from fna_lightning.integrations.enable import Replacement
from fna_lightning.introspection.maps import attention_maps


def encoder(layers: int = 2) -> nn.TransformerEncoder:
    torch.manual_seed(0)
    return nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, dropout=0.0, batch_first=True), layers).eval()


def tokens() -> torch.Tensor:
    return torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(0))


def test_it_exchanges_every_multihead_attention_of_an_encoder() -> None:
    model, plain = encoder(), encoder()
    parameters = dict(model.named_parameters())
    replaced = enable(model, 1.6, kappa=3.0)
    assert [(layer.name, layer.kind) for layer in replaced] == [
        ("layers.0.self_attn", "nn.MultiheadAttention"),
        ("layers.1.self_attn", "nn.MultiheadAttention"),
    ]
    assert isinstance(replaced[0], Replacement)
    assert (replaced[0].attention.alpha, replaced[0].attention.kappa) == (1.6, 3.0)
    # The same objects, so that an optimizer that was made before still trains the model.
    assert all(parameter is parameters[name] for name, parameter in model.named_parameters())
    assert model.state_dict().keys() == plain.state_dict().keys()
    padding = torch.tensor([[False] * 7, [False] * 4 + [True] * 3])
    assert not torch.allclose(model(tokens()), plain(tokens()), atol=1e-3)
    shortened = model(tokens()[1:, :4])
    assert_close(model(tokens(), src_key_padding_mask=padding)[1:, :4], shortened, rtol=1e-4, atol=1e-5)
    for layer in model.layers:
        layer.self_attn.core.attention = DotProduct()
    assert_close(model(tokens()), plain(tokens()), rtol=1e-4, atol=1e-5)


def test_a_shared_module_is_exchanged_everywhere() -> None:
    attention = nn.MultiheadAttention(16, 2, kdim=8, vdim=4, bias=False)
    model = nn.ModuleDict({"first": attention, "second": attention, "list": nn.ModuleList([attention])})
    enable(model)
    assert isinstance(model["first"], FractionalMultiheadAttention)
    assert model["first"] is model["second"] is model["list"][0]
    assert model["first"].k_proj_weight is attention.k_proj_weight


def test_calibration_of_plain_models() -> None:
    model, plain = nn.Transformer(16, 2, 1, 1, 32, batch_first=True).eval(), encoder(1)
    replaced = enable(model, kappa="auto", batch=(tokens(), tokens()))
    assert [layer.name for layer in replaced] == [
        "encoder.layers.0.self_attn",
        "decoder.layers.0.self_attn",
        "decoder.layers.0.multihead_attn",
    ]
    assert all(len(layer.attention.kappa) == 2 for layer in replaced)
    with pytest.raises(ValueError, match=r"kappa='auto' is calibrated on a batch; pass batch="):
        enable(plain, kappa="auto")
    with pytest.raises(AssertionError, match="must have width 16"):
        enable(plain, kappa="auto", batch=torch.zeros(1, 2, 3))
    assert type(plain.layers[0].self_attn) is nn.MultiheadAttention


def test_learned_kappa() -> None:
    model = encoder(1)
    replaced = enable(model, learn=["kappa"])
    model.train()(tokens()).square().sum().backward()
    assert replaced[0].attention.learned.log_scale.grad.abs().min() > 0


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (nn.Linear(2, 2), r"Linear contains no model of transformers or timm and no nn\.MultiheadAttention, so .*"),
        (nn.MultiheadAttention(4, 2), r"an nn\.MultiheadAttention cannot exchange itself; create a Fractional.*"),
    ],
)
def test_an_unknown_model_is_an_error(model: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        enable(model)


def test_timm_models() -> None:
    timm = pytest.importorskip("timm", reason="needs the extra `timm`")
    torch.manual_seed(0)
    model = nn.Sequential(timm.create_model("vit_tiny_patch16_224", img_size=32, depth=2), nn.Linear(1000, 2)).eval()
    replaced = enable(model)
    assert [(layer.name, layer.kind) for layer in replaced] == [
        ("0.blocks.0.attn", "timm"),
        ("0.blocks.1.attn", "timm"),
    ]
    assert replaced[0].attention.kappa == "vision"
    maps = attention_maps(model, lambda: (model(torch.zeros(1, 3, 32, 32)), None)[1])
    assert list(maps) == [layer.name for layer in replaced]
    with pytest.raises(ValueError, match="pass partial=True"):
        enable(timm.create_model("cait_xxs24_224", depth=1))
    assert len(enable(timm.create_model("cait_xxs24_224", depth=1), partial=True)) == 2


def test_transformers_models() -> None:
    transformers = pytest.importorskip("transformers", reason="needs the extra `hf`")
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    bert = transformers.BertModel(transformers.BertConfig(**sizes, intermediate_size=16))
    replaced = enable(nn.Sequential(bert), 1.6)
    assert [(layer.name, layer.kind) for layer in replaced] == [("0.encoder.layer.0.attention.self", "transformers")]
    assert bert.config._attn_implementation == "fna"
    with pytest.raises(ValueError, match=r"models of transformers take alpha and kappa, .* but not learn"):
        enable(bert, learn=["kappa"])


def test_the_name_does_not_import_other_libraries() -> None:
    code = "import fna_lightning, sys; fna_lightning.enable; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd="/", capture_output=True, text=True)
    assert not {"transformers", "timm", "lightning", "torchvision"} & set(done.stdout.split())
    assert "enable" in dir(fna_lightning)
