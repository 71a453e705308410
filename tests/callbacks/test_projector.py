"""Projector writes the tokens of a trained model for TensorBoard."""

from pathlib import Path

import pytest

from fna_lightning.callbacks import Projector

from helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("config", ["reviews_fna.yaml", "reviews_dp.yaml"])
def test_a_run_writes_its_token_embeddings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: str) -> None:
    monkeypatch.setenv("FNA_RUN_DIR", "")
    run = train_tiny(tmp_path, "--trainer.callbacks+=Projector", config=config).parents[1]
    config_text = (run / "projector_config.pbtxt").read_text()
    assert "tokens" in config_text
    (words,) = run.glob("*/tokens/metadata.tsv")
    (vectors,) = run.glob("*/tokens/tensors.tsv")
    assert "gripping" in words.read_text().splitlines()
    assert len(words.read_text().splitlines()) == len(vectors.read_text().splitlines())
    assert list(run.glob("*/diffusion_map/tensors.tsv"))


def test_too_few_tokens_are_refused() -> None:
    with pytest.raises(ValueError, match="tokens must be at least 5, got 2"):
        Projector(tokens=2)
