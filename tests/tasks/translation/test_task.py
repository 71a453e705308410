"""Translation: loss, scores, predictions, averaged weights; several processes compute the scores of one."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import lightning as L
import pytest
import sacrebleu
import torch
from lightning.pytorch.callbacks import EMAWeightAveraging
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.testing import assert_close

from fna_lightning.attention import DotProduct
from fna_lightning.callbacks import AverageEpochs
from fna_lightning.checkpoints.load import load_task
from fna_lightning.cli import main
from fna_lightning.nn import EncoderConfig, Seq2SeqConfig
from fna_lightning.tasks import NumberData, Translation
from fna_lightning.tasks.translation.codec import END
from fna_lightning.tasks.translation.data import pad_pairs
from fna_lightning.tasks.translation.scores import Scored, score

from helpers.tiny_translation import train_tiny_translation

pytestmark = pytest.mark.e2e


def small(**more: object) -> Translation:
    torch.manual_seed(0)
    data = NumberData()
    network = Seq2SeqConfig(EncoderConfig(dim=16, num_heads=2, ffn_dim=16, dropout=0.0), tied="target")
    return Translation(data.source_vocab_size, data.target_vocab_size, DotProduct(), network, **more)  # type: ignore[arg-type]


def test_loss_averages_over_real_tokens() -> None:
    task, pairs = small(label_smoothing=0.1), NumberData(train_size=9).split("train")
    batch = pad_pairs([pairs[index] for index in range(9)])
    assert batch.target_lengths.unique().numel() > 1
    got = task.loss(batch, "train")
    scores = task(batch.source, batch.source_lengths, batch.target[:, :-1])
    next_tokens = batch.target[:, 1:].masked_fill(batch.target[:, 1:] == 0, -100)
    want = torch.nn.functional.cross_entropy(scores.flatten(0, 1), next_tokens.flatten(), label_smoothing=0.1)
    assert_close(got, want)
    nll = torch.nn.functional.cross_entropy(scores.flatten(0, 1), next_tokens.flatten())
    assert_close(task.stage_metrics("train").compute()["train/nll"], nll)
    assert task.loss_weight(batch) == int((batch.target[:, 1:] != 0).sum())


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("runs"), "model.bleu_every=2").parents[1]


def test_test_writes_scores_and_hypotheses(run, capsys) -> None:
    checkpoint = run / "checkpoints" / "best.ckpt"
    words = [
        "--config",
        str(run / "config.yaml"),
        "--ckpt_path",
        str(checkpoint),
        "--trainer.enable_progress_bar=false",
    ]
    assert main(["test", *words]) == 0
    report = json.loads((run / "test.scores.json").read_text())
    sources, hypotheses, references = (
        (run / f"test.{name}.txt").read_text().splitlines() for name in ("src", "hyp", "ref")
    )
    assert len(sources) == len(hypotheses) == len(references) == report["sentences"] == 30
    bleu = sacrebleu.metrics.BLEU()
    assert report["metrics"]["bleu"] == pytest.approx(bleu.corpus_score(hypotheses, [references]).score)
    assert report["signatures"]["bleu"] == str(bleu.get_signature())
    assert "case:mixed" in report["signatures"]["bleu"]
    assert "tok:13a" in report["signatures"]["bleu"]
    assert report["metrics"]["chrf"] == pytest.approx(sacrebleu.corpus_chrf(hypotheses, [references]).score)
    assert report["metrics"]["ter"] == pytest.approx(sacrebleu.corpus_ter(hypotheses, [references]).score)
    assert "nothing is decoded" in report["signatures"]["bleu_paper"]
    results = json.loads((run / "results.json").read_text())
    assert results["test"]["metrics"]["test/bleu"] == pytest.approx(report["metrics"]["bleu"], rel=1e-5)
    # Greedy decoding during training, in the second epoch only.
    assert "val/bleu" in (run / "metrics.csv").read_text().partition("\n")[0]


def test_predictions_are_translations(run) -> None:
    words = ["--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]
    assert main(["predict", *words, "--trainer.enable_progress_bar=false"]) == 0
    head, *lines = (run / "predictions.csv").read_text().splitlines()
    assert head == "index,translation,score"
    assert len(lines) == 30


def test_two_processes_compute_the_scores_of_one(run, tmp_path) -> None:
    words = ["--config", str(run / "config.yaml"), "--ckpt_path", str(run / "checkpoints" / "best.ckpt")]
    words += ["--trainer.enable_progress_bar=false", "--trainer.accelerator=cpu"]
    assert main(["test", *words]) == 0
    expected = json.loads((run / "test.scores.json").read_text())
    hypotheses = (run / "test.hyp.txt").read_text()
    (run / "test.scores.json").unlink()
    # 30 sentences in small batches: the last batches have different sizes on the two processes.
    more = ["--trainer.devices=2", "--trainer.strategy=ddp", "--data.batch_tokens=70"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "FNA_RUN_DIR": ""}
    command = [sys.executable, "-m", "fna_lightning.cli", "test", *words, *more]
    subprocess.run(command, check=True, env=environment, timeout=300, capture_output=True)
    report = json.loads((run / "test.scores.json").read_text())
    assert report["sentences"] == 30
    assert report["metrics"] == pytest.approx(expected["metrics"])
    assert (run / "test.hyp.txt").read_text() == hypotheses


def scored(index: int, text: str) -> Scored:
    return Scored(index, text, 0.0, text)


def test_missing_or_repeated_sentence_is_an_error() -> None:
    references = ["ein Mann", "zwei Hunde"]
    with pytest.raises(RuntimeError, match=r"2 references, 1 translations of 1 different"):
        score([scored(0, "a")], references)
    with pytest.raises(RuntimeError, match=r"2 references, 2 translations of 1 different"):
        score([scored(1, "a"), scored(1, "a")], references)


def test_scores_of_known_translations() -> None:
    references = ["Ein Mann läuft über die Straße .", "Zwei Hunde spielen im Schnee ."]
    perfect = score([scored(1, references[1]), scored(0, references[0])], references).metrics
    assert perfect["bleu"] == perfect["bleu_paper"] == pytest.approx(100.0)
    assert perfect["exact_match"] == 1.0
    assert perfect["ter"] == 0.0
    lowercase = score([scored(0, references[0].lower()), scored(1, references[1].lower())], references).metrics
    assert lowercase["bleu"] < 50.0
    assert lowercase["bleu_lowercase"] == lowercase["bleu_tokenised_lowercase"] == pytest.approx(100.0)
    # The mean over sentences; a sentence without a common four-gram counts 0.
    half = score([scored(0, references[0]), scored(1, "Drei Katzen")], references).metrics
    assert half["bleu_paper"] == pytest.approx(50.0)


class StepCounter(L.LightningModule):
    """Model whose only weight is the number of steps taken."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(1))
        self.validated: list[float] = []

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return -self.weight.sum()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        self.validated.append(self.weight.item())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=1.0)


def test_average_epochs_averages_the_last_epochs(tmp_path) -> None:
    model, loader = StepCounter(), torch.utils.data.DataLoader(torch.zeros(3), batch_size=1)
    trainer = L.Trainer(
        max_epochs=5, callbacks=[AverageEpochs(last=3)], logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=tmp_path,
        accelerator="cpu",
    )  # fmt: skip
    trainer.fit(model, loader, torch.utils.data.DataLoader(torch.zeros(1)))
    # The weights after the epochs are 3, 6, 9, 12, 15. From the third epoch on, the mean is validated: 9, 10.5, 12.
    assert model.validated == [3.0, 6.0, 9.0, 10.5, 12.0]
    assert model.weight.item() == 12.0
    with pytest.raises(ValueError, match="last must be at least 1 epoch, got 0"):
        AverageEpochs(0)


def test_checkpoint_contains_the_averaged_weights(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    average = f"trainer.callbacks+={EMAWeightAveraging.__module__}.{EMAWeightAveraging.__name__}"
    checkpoint = train_tiny_translation(tmp_path, average, "trainer.callbacks.decay=0.5")
    content = torch.load(checkpoint, weights_only=True)
    name = "network.target.tokens.weight"
    assert not torch.equal(content["state_dict"][name], content["current_model_state"][name])
    assert_close(load_task(checkpoint).state_dict()[name], content["state_dict"][name])


def test_plateau_schedule_monitors_the_validation_loss() -> None:
    task = small(lr_scheduler=partial(ReduceLROnPlateau, factor=0.75))
    assert task.configure_optimizers()["lr_scheduler"]["monitor"] == "val/nll"


def test_empty_source_is_translated() -> None:
    batch = pad_pairs([NumberData(train_size=1).split("train")[0]])
    task = small().eval()
    empty = batch._replace(source=torch.tensor([[END]]), source_lengths=torch.tensor([1]))
    assert len(task.translate(empty)) == 1
