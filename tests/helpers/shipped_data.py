"""Small files in the layout of the real data sets, enough to train every shipped configuration for one step."""

import json
from pathlib import Path

from helpers.cifar_folder import cifar_folder
from helpers.imdb_folder import imdb_folder
from helpers.photo_folder import photo_folder

SENTENCES = [("A man is walking.", "Ein Mann läuft."), ("Two dogs run.", "Zwei Hunde rennen.")] * 8


def shipped_data(folder: Path) -> Path:
    """Write small versions of CIFAR-10, IMDb and Multi30K, and photos, to ``folder``, for FNA_DATA, and return it."""
    cifar_folder(folder / "cifar10")
    imdb_folder(folder / "imdb")
    photo_folder(folder / "photos", 20)
    (folder / "multi30k").mkdir()
    for split in ("train", "val", "test"):
        lines = [json.dumps({"en": english, "de": german}) for english, german in SENTENCES]
        (folder / "multi30k" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder
