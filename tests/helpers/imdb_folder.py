"""A small folder in the layout of the hub's IMDb."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

GOOD = ["wonderful", "moving", "clever", "splendid"]
BAD = ["dreadful", "boring", "clumsy", "tedious"]
# fmt: off
OTHER = [
    "the", "film", "was", "with", "a", "plot", "and", "music", "by", "someone", "from", "there", "then", "it", "ended",
]
# fmt: on


def review(rng: random.Random, label: int) -> str:
    words = [rng.choice(OTHER) for _ in range(rng.randint(3, 30))] + [rng.choice(GOOD if label else BAD)]
    rng.shuffle(words)
    return " ".join(words).capitalize() + ".<br /><br />End"


def write_split(folder: Path, split: str, texts: list[str], labels: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"text": texts, "label": labels}), folder / f"{split}-00000-of-00001.parquet")


def imdb_folder(folder: Path, *, train: int = 60, test: int = 20, shared: int = 3) -> Path:
    """Write both splits, sorted by label; the first ``shared`` test reviews are also training reviews."""
    rng = random.Random(0)
    splits = {}
    for name, count in (("train", train), ("test", test)):
        labels = [0] * (count // 2) + [1] * (count - count // 2)
        # the numbers make all reviews different
        splits[name] = ([f"{name} {i} {review(rng, label)}" for i, label in enumerate(labels)], labels)
    splits["test"][0][:shared] = splits["train"][0][:shared]
    for name, (texts, labels) in splits.items():
        write_split(folder, name, texts, labels)
    return folder
