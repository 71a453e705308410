"""A translation run of a few seconds: a few steps on a few number words."""

from pathlib import Path

from fna_lightning.cli import main

TINY = (
    "data.train_size=600",
    "data.eval_size=30",
    "data.largest=999",
    "trainer.max_epochs=2",
    "model.network.encoder.dim=16",
    "model.network.encoder.depth=1",
    "model.network.encoder.ffn_dim=16",
)


def train_tiny_translation(folder: Path, *more: str, config: str = "numbers_fna.yaml") -> Path:
    """Train in ``folder`` and return the best checkpoint."""
    options = [f"--{option}" for option in (*TINY, *more)]
    quiet = "--trainer.enable_progress_bar=false"
    assert main(["fit", "--config", config, *options, f"--trainer.default_root_dir={folder}", quiet]) == 0
    (checkpoint,) = folder.glob("*/version_*/checkpoints/best.ckpt")
    return checkpoint
