"""Attention graphs of transformers models: `analyze hf:FOLDER`, and callbacks during training."""

import json
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.data import DataLoader
from torchmetrics import MetricCollection

tf = pytest.importorskip("transformers", reason="needs the extra `hf`")

from fna_lightning.callbacks import AttentionGraph  # noqa: E402
from fna_lightning.cli import main  # noqa: E402
from fna_lightning.graph import spectral_gap  # noqa: E402
from fna_lightning.integrations import hf  # noqa: E402
from fna_lightning.task import Task  # noqa: E402

from helpers.hf_models import inputs, tiny  # noqa: E402
from helpers.hf_tokenizer import save  # noqa: E402


def analyze(folder: Path, *words: str) -> dict[str, Any]:
    text = "the plot was not what i call gripping"
    assert main(["analyze", *words, "--text", text, "--out", str(folder)]) == 0
    assert (folder / "index.html").stat().st_size > 10_000
    return json.loads((folder / "results.json").read_text())


def test_a_model_is_analyzed_against_its_dot_product_version(tmp_path: Path) -> None:
    fna = save(hf.enable(tiny("bert"), 1.2, 1.5), tmp_path / "fna")
    plain = save(tiny("bert"), tmp_path / "plain")
    report = analyze(tmp_path / "out", fna, "--against", plain)
    assert [model["label"] for model in report["models"]] == ["fna", "plain"]
    assert "Fractional(alpha=1.2, kappa=1.5" in report["models"][0]["attention"]
    assert "DotProduct" in report["models"][1]["attention"]
    (example,) = report["examples"]
    assert example["words"] == ["[CLS]", "the", "plot", "was", "not", "what", "i", "call", "gripping"]
    # two layers of four heads, each followed by their mean
    assert [len(model["heads"]) for model in example["models"]] == [10, 10]
    # The first layer of the dot-product version is compared with transformers' own weights.
    model = tf.BertForSequenceClassification.from_pretrained(tmp_path / "plain", attn_implementation="eager").eval()
    ids = torch.tensor([[1, *range(3, 11)]])
    with torch.no_grad():
        out = model(ids, output_attentions=True)
    gaps = spectral_gap(out.attentions[0].double())[0]
    for head, gap in zip(example["models"][1]["heads"][:4], gaps.tolist(), strict=True):
        assert head["measures"]["spectral_gap"] == pytest.approx(gap, abs=1e-4)
    best = out.logits.softmax(-1).max().item()
    assert example["models"][1]["probability"] == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize(("name", "layers"), [("gpt2", 2), ("t5", 2)])
def test_language_models_and_encoders_are_analyzed(name: str, layers: int, tmp_path: Path) -> None:
    report = analyze(tmp_path / "out", save(hf.enable(tiny(name), 1.2, 1.5), tmp_path / name))
    (example,) = report["examples"]
    assert [head["head"] for head in example["models"][0]["heads"]] == [0, 1, 2, 3, -1] * layers


def test_usage_errors(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", f"hf:{tmp_path}", "--text", "a film"]) == 2
    error = capsys.readouterr().err
    assert "cannot be opened" in error
    assert "give a folder that model.save_pretrained and tokenizer.save_pretrained wrote" in error
    folder = save(hf.enable(tiny("bert"), 1.2, 1.5), tmp_path / "bert")
    assert main(["analyze", folder]) == 2
    assert "pass texts by --text" in capsys.readouterr().err


class BertTask(Task):
    """A user's Lightning task around a transformers model."""

    def __init__(self) -> None:
        super().__init__(MetricCollection({}))
        self.bert = hf.enable(tiny("bert"), 1.2, 1.5)

    def loss(self, batch: dict[str, Tensor], stage: str) -> Tensor:
        logits = self.bert(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"]).logits
        return F.cross_entropy(logits, batch["input_ids"][:, 0] % 3)

    def batch_size(self, batch: dict[str, Tensor]) -> int:
        return len(batch["input_ids"])

    def probe(self, batch: dict[str, Tensor], max_length: int | None = None) -> dict[str, Tensor]:
        cut = {name: tensor[:, :max_length] for name, tensor in batch.items()}
        self.bert(**cut)
        return {"": cut["attention_mask"].sum(-1)}


def test_attention_graph_measures_a_transformers_model(tmp_path: Path) -> None:
    batch = inputs("bert", (9, 5, 7, 6))
    rows = [{name: batch[name][row] for name in ("input_ids", "attention_mask")} for row in range(4)]
    loader = DataLoader(rows, batch_size=2)
    options: dict[str, Any] = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(
        max_epochs=1, callbacks=[AttentionGraph(figures=False)], enable_checkpointing=False,
        default_root_dir=tmp_path, accelerator="cpu", **options,
    )  # fmt: skip
    trainer.fit(BertTask(), loader, loader)
    assert 0.0 < trainer.callback_metrics["attention/spectral_gap"].item() <= 1.0
    assert "attention/mean_hops" in trainer.callback_metrics
