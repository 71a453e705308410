"""A folder of small photographs: colored shapes in two sizes, one folder per class."""

from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

SHAPES = ("circle", "square", "triangle")


def draw_shape(shape: str, size: tuple[int, int], rng: np.random.Generator) -> Image.Image:
    """Return a light shape on a dark background."""
    background, color = rng.integers(0, 80, 3).tolist(), rng.integers(140, 256, 3).tolist()
    image = Image.new("RGB", size, tuple(background))
    draw = ImageDraw.Draw(image)
    radius = int(rng.integers(min(size) // 5, min(size) // 3))
    x, y = (int(rng.integers(side // 2 - 6, side // 2 + 7)) for side in size)
    box = (x - radius, y - radius, x + radius, y + radius)
    if shape == "circle":
        draw.ellipse(box, fill=tuple(color))
    elif shape == "square":
        draw.rectangle(box, fill=tuple(color))
    else:
        draw.polygon([(x, y - radius), (x - radius, y + radius), (x + radius, y + radius)], fill=tuple(color))
    return image


def photo_folder(folder: Path, count: int = 10, seed: int = 0) -> Path:
    """Write ``count`` JPEG files of each shape, in two sizes, and return the folder."""
    rng = np.random.default_rng(seed)
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True)
        for number in range(count):
            size = (80, 60) if number % 2 else (48, 64)
            draw_shape(shape, size, rng).save(folder / shape / f"{number}.jpg")
    return folder
