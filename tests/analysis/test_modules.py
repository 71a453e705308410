"""``study`` of modules in memory: any module on a batch, models of transformers, and models of timm."""

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from fna_lightning.analysis import study
from fna_lightning.attention import Fractional, MultiheadAttention
from fna_lightning.errors import UsageError
from fna_lightning.graph import measure


def encoder() -> nn.Module:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(16, 4, dim_feedforward=16, batch_first=True, dropout=0.1)
    return nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)


class TwoLayers(nn.Module):
    """Two attention layers on different numbers of tokens, and logits."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(MultiheadAttention(8, 2, Fractional(1.2, 1.0)) for _ in range(2))

    def forward(self, x: Tensor, scale: float = 1.0) -> Tensor:
        return self.layers[1](self.layers[0](x * scale)[:, ::2])


def test_any_module_is_studied_on_a_batch() -> None:
    module, batch = encoder(), torch.randn(3, 7, 16, generator=torch.Generator().manual_seed(1))
    report = study(module, batch=batch)
    # the user's module stays in training mode
    assert module.training
    assert report.kind == "batch"
    assert [example.title for example in report.examples] == ["row 1", "row 2", "row 3"]
    assert report.examples[0].words == [str(number) for number in range(1, 8)]
    assert report.models[0].layers == {"layers.0.self_attn": "layer 1", "layers.1.self_attn": "layer 2"}
    assert report.ablation == []
    _, weights = module.eval().layers[0].self_attn(batch, batch, batch, average_attn_weights=False)
    entropies = measure(weights.detach())["entropy"]
    for row, example in enumerate(report.examples):
        (model,) = example.models
        assert (model.prediction, model.probabilities, model.correct) == ("", {}, None)
        first = [head.measures["entropy"] for head in model.heads if head.layer == "layers.0.self_attn"][:4]
        assert first == pytest.approx(entropies[row].tolist(), abs=1e-6)


def test_layers_with_other_tokens_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    module = TwoLayers()
    report = study(module, batch=(torch.randn(2, 6, 8), 0.5))
    assert {head.layer for head in report.examples[0].models[0].heads} == {"layers.0"}
    assert "layers.1 have other tokens than the first layer and are left out" in caplog.text


@pytest.mark.parametrize(
    ("model", "arguments", "message"),
    [
        (nn.Linear(3, 3), {"batch": torch.zeros(2, 3)}, "Linear has no self-attention"),
        (encoder(), {}, "TransformerEncoder is a module without a data set; pass batch=..."),
        (encoder(), {"texts": ["a"]}, "TransformerEncoder reads texts only with its tokenizer; pass tokenizer=..."),
        (encoder(), {"images": ["a.png"]}, "is a module that is studied on a batch and does not take images"),
        (encoder(), {"batch": "a"}, "batch must be a tensor, a tuple or a dictionary of tensors"),
        (encoder(), {"batch": torch.zeros(0, 4, 16)}, "with at least one row"),
        (encoder(), {"texts": ["a"], "tokenizer": len}, "TransformerEncoder is not a transformers model"),
        (7, {"texts": ["a"]}, "a model must be a path, 'hf:FOLDER' or a torch.nn.Module, got int"),
    ],
)
def test_unsuitable_arguments(model: Any, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        study(model, **arguments)


def test_a_transformers_model_with_its_tokenizer(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="needs the extra `hf`")
    from helpers.hf_models import tiny
    from helpers.hf_tokenizer import save, tokenizer

    model = tiny("bert")
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    text = "the plot was not what i call gripping"
    report = study(model, tokenizer=tokenizer(), texts=[text])
    assert report.examples[0].words == ["[CLS]", *text.split()]
    assert report.models[0].label == "BertForSequenceClassification"
    assert list(report.models[0].layers.values()) == ["layer 1", "layer 2"]
    assert len(report.ablation[0].p) == 11
    # the model is studied as its saved folder is, and stays as it was
    saved = study(save(model, tmp_path), texts=[text])
    for head, expected in zip(saved.examples[0].models[0].heads, report.examples[0].models[0].heads, strict=True):
        assert head.measures == pytest.approx(expected.measures)
    assert model.config._attn_implementation != "fna"
    assert model.state_dict().keys() == weights.keys()


def test_a_transformers_model_on_a_padded_batch() -> None:
    pytest.importorskip("transformers", reason="needs the extra `hf`")
    from helpers.hf_models import inputs, tiny

    model, batch = tiny("bert").eval(), inputs("bert", (9, 5))
    report = study(model, batch=batch)
    assert [len(example.words) for example in report.examples] == [9, 5]
    assert report.examples[1].words == [str(token) for token in batch["input_ids"][1, :5].tolist()]
    with torch.no_grad():
        logits = model(**batch).logits
    for example, row in zip(report.examples, logits.softmax(dim=-1), strict=True):
        assert example.models[0].prediction == f"class {row.argmax().item()}"
        assert example.models[0].probability == pytest.approx(row.max().item(), abs=1e-5)


def test_models_of_timm_are_studied_on_images() -> None:
    timm = pytest.importorskip("timm", reason="needs the extra `timm`")
    from fna_lightning import enable

    sizes = {"img_size": 16, "patch_size": 4, "embed_dim": 24, "depth": 2, "num_heads": 3, "num_classes": 5}
    plain = timm.models.VisionTransformer(**sizes, reg_tokens=2)
    image = torch.randint(0, 256, (3, 16, 16), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    report = study(plain, images=[image])
    (example,) = report.examples
    assert (report.kind, example.title) == ("image", "image 1")
    assert example.words[:4] == ["CLS", "R1", "R2", "1,1"]
    assert example.words[-1] == "4,4"
    assert example.pixels is image
    assert list(report.models[0].layers.values()) == ["layer 1", "layer 2"]
    assert set(example.models[0].probabilities) == {f"class {number}" for number in range(5)}
    # attention that is not a layer of this package cannot be ablated
    assert report.ablation == []
    fractional = timm.models.VisionTransformer(**sizes, reg_tokens=2)
    enable(fractional)
    assert len(study(fractional, images=[image]).ablation) == 1
    compared = study(fractional, against=[plain], images=[image])
    assert compared.ablation == []
    assert [info.attention for info in compared.models] == ["Fractional(alpha=1.2, kappa=vision)", "DotProduct()"]
    with pytest.raises(UsageError, match=r"must have the shape \(3, 16, 16\) and the type torch.uint8"):
        study(plain, images=[image.float()])
