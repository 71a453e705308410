"""Numbers that ``fit``, ``validate``, ``test`` and ``predict`` print: none of them misleads."""

import json
import re
from pathlib import Path

import pytest

from fna_lightning.cli import main

from helpers.tiny_runs import train_tiny
from helpers.tiny_translation import train_tiny_translation

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("verb", ["validate", "test", "predict"])
def test_random_weights_are_not_evaluated(verb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "runs"
    assert main([verb, "--config", "reviews_fna.yaml", f"--trainer.default_root_dir={root}"]) == 2
    message = (
        f"fna-lightning: error: {verb} needs a trained model, and without --ckpt_path the weights would be random; add "
        "--ckpt_path runs/NAME/version_0 (a run folder or a checkpoint)"
    )
    assert message in capsys.readouterr().err.splitlines()
    assert not root.exists()


def test_a_limited_validation_and_test_say_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    checkpoint = train_tiny(tmp_path, "--trainer.limit_val_batches=1")
    printed = capsys.readouterr().out
    assert re.search(r"│ val/ metrics +│ on 16 of 32 examples \(limit_val_batches\)", printed)
    assert "│ attention/spectral_gap" in printed
    assert "attention_detail" not in printed
    config = f"--config={checkpoint.parents[1] / 'config.yaml'}"
    limit = ["--trainer.limit_test_batches=0.5", "--trainer.enable_progress_bar=false"]
    assert main(["test", config, f"--ckpt_path={checkpoint}", *limit]) == 0
    assert "│ test/ metrics │ on 16 of 32 examples (limit_test_batches)" in capsys.readouterr().out
    results = json.loads((checkpoint.parents[1] / "results.json").read_text())
    assert results["fit"]["limited"] == {"val": {"evaluated": 16, "total": 32, "unit": "examples"}}
    assert results["test"]["limited"] == {"test": {"evaluated": 16, "total": 32, "unit": "examples"}}
    assert main(["validate", config, f"--ckpt_path={checkpoint}", "--trainer.limit_val_batches=1.0"]) == 0
    printed = capsys.readouterr().out
    assert "validate finished" in printed
    assert "limit_val_batches" not in printed
    assert "limited" not in json.loads((checkpoint.parents[1] / "results.json").read_text())["validate"]


def test_the_closing_table_of_a_translator(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # the last epoch is decoded although it is not a multiple of three
    checkpoint = train_tiny_translation(tmp_path, "model.bleu_every=3")
    captured = capsys.readouterr()
    assert "effective batch up to 2048 tokens = 2048 x 1 process x 1 accumulated, learning rate 0.003" in captured.err
    for name in ("val/bleu", "val/token_accuracy", "val/nll"):
        assert f"│ {name} " in captured.out
    assert "loss_epoch" not in captured.out
    arguments = [f"--config={checkpoint.parents[1] / 'config.yaml'}", f"--ckpt_path={checkpoint}"]
    limit = ["--data.batch_tokens=60", "--trainer.limit_test_batches=2", "--trainer.enable_progress_bar=false"]
    assert main(["test", *arguments, *limit]) == 0
    captured = capsys.readouterr()
    assert "│ test/bleu " in captured.out
    assert "│ test/token_accuracy " in captured.out
    assert "effective_order" not in captured.err
    scores = json.loads((checkpoint.parents[1] / "test.scores.json").read_text())
    assert 0 < scores["sentences"] < 30
    assert f"on {scores['sentences']} of 30 examples (limit_test_batches)" in captured.out
