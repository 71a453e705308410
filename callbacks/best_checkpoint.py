"""The checkpoint with the best validation metric."""

from pathlib import Path
from typing import Any

from lightning.pytorch.callbacks import ModelCheckpoint


class BestCheckpoint(ModelCheckpoint):
    """Lightning's ``ModelCheckpoint``, except that the run folder may be moved or renamed before the run is resumed."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        folder = Path(self.dirpath or ".")

        def in_folder(path: str) -> str:
            return str(folder / Path(path).name) if path else path

        moved = {name: in_folder(state_dict[name]) for name in state_dict if name.endswith("model_path")}
        best = {in_folder(path): score for path, score in state_dict["best_k_models"].items()}
        super().load_state_dict({**state_dict, **moved, "best_k_models": best, "dirpath": self.dirpath})
