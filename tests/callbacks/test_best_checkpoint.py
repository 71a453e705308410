"""BestCheckpoint: a resumed run knows its best checkpoint although its folder was moved."""

from pathlib import Path
from typing import Any

import lightning as L
import torch

from fna_lightning.callbacks import BestCheckpoint

from helpers.linear_task import fit, new_trainer


class Score(L.Callback):
    """Logs the scores of the validations, one after another."""

    def __init__(self, *scores: float) -> None:
        self.scores = list(scores)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        pl_module.log("score", self.scores.pop(0))


def best(folder: Path) -> BestCheckpoint:
    return BestCheckpoint(folder, "best", monitor="score", mode="max", enable_version_counter=False, save_last=True)


def test_the_best_checkpoint_is_kept(tmp_path: Path) -> None:
    callback = best(tmp_path)
    fit(new_trainer(tmp_path, callback, Score(0.5, 0.9, 0.1), max_epochs=3))
    assert callback.best_model_path == str(tmp_path / "best.ckpt")
    assert torch.load(tmp_path / "best.ckpt", weights_only=True)["epoch"] == 1
    assert float(callback.best_model_score) == torch.tensor(0.9).item()


def test_a_moved_folder_keeps_its_best_score(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    fit(new_trainer(old, best(old), Score(0.5, 0.9), max_epochs=2))
    old.rename(new)
    callback = best(new)
    fit(new_trainer(new, callback, Score(0.1), max_epochs=3), new / "last.ckpt")
    # The worse score of the third epoch does not replace the best checkpoint.
    assert callback.best_model_path == str(new / "best.ckpt")
    assert torch.load(new / "best.ckpt", weights_only=True)["epoch"] == 1
    assert not old.exists()


def test_the_paths_of_a_state_are_those_of_the_new_folder(tmp_path: Path) -> None:
    state: dict[str, Any] = best(Path("/old")).state_dict()
    state |= {"best_model_path": "/old/best.ckpt", "best_k_models": {"/old/best.ckpt": torch.tensor(0.9)}}
    callback = best(tmp_path)
    callback.load_state_dict(state)
    assert callback.best_model_path == str(tmp_path / "best.ckpt")
    assert list(callback.best_k_models) == [str(tmp_path / "best.ckpt")]
    # an empty path means that there is no such checkpoint yet
    assert callback.last_model_path == ""
