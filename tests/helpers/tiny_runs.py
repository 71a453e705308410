"""Training runs of one second: a few steps on a few generated reviews."""

from pathlib import Path

from fna_lightning.cli import main

TINY = ("data.train_size=64", "data.eval_size=32", "data.longest=40", "data.batch_size=16", "trainer.max_epochs=1")


def train_tiny(folder: Path, *more: str, config: str = "reviews_dp.yaml") -> Path:
    """Train in ``folder`` and return the best checkpoint."""
    options = [f"--{option}" for option in TINY]
    quiet = "--trainer.enable_progress_bar=false"
    assert main(["fit", "--config", config, *options, f"--trainer.default_root_dir={folder}", quiet, *more]) == 0
    (checkpoint,) = folder.glob("*/version_*/checkpoints/best.ckpt")
    return checkpoint
