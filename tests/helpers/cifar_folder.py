"""A small folder in the layout of the hub's CIFAR-10."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from PIL import Image


def png(pixels: np.ndarray) -> bytes:
    """Return (S, S, 3) or (S, S) pixels encoded as PNG."""
    file = BytesIO()
    Image.fromarray(pixels).save(file, format="PNG")
    return file.getvalue()


def random_images(count: int, seed: int = 0, size: int = 32) -> np.ndarray:
    """Return (N, S, S, 3) random pixels."""
    return np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)


def write_split(folder: Path, split: str, files: list[bytes], labels: list[int], column: str = "img") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"bytes": content, "path": None} for content in files]
    pq.write_table(pa.table({column: rows, "label": labels}), folder / f"{split}-00000-of-00001.parquet")


def cifar_folder(folder: Path, *, train: int = 200, test: int = 40) -> Path:
    """Write both splits with random pixels and the labels 0 to 9 in turn."""
    for seed, (name, count) in enumerate((("train", train), ("test", test))):
        write_split(folder, name, [png(image) for image in random_images(count, seed)], [i % 10 for i in range(count)])
    return folder
