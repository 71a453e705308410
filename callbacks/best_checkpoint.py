"""The best checkpoint of a run, wherever the run folder is moved."""

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint


class BestCheckpoint(ModelCheckpoint):
    """Lightning's checkpoint by a metric; a run that is resumed in a folder of another name still knows its best."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        folder = Path(self.dirpath or ".")

        def here(path: str) -> str:
            return str(folder / Path(path).name) if path else path

        moved = {name: here(state_dict[name]) for name in state_dict if name.endswith("model_path")}
        best = {here(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **moved, "best_k_models": best, "dirpath": self.dirpath})
