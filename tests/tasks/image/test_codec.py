"""Decoding of image files: formats, colors, transparency, orientation, sizes."""

from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.codec import ImageCodec, decode

RED = (255, 0, 0)


def encode(image: Image.Image, file_format: str = "PNG", **options: object) -> bytes:
    file = BytesIO()
    image.save(file, file_format, **options)
    return file.getvalue()


def color(content: bytes, channels: int = 3) -> list[int]:
    """Return the decoded pixel in the center."""
    return decode(content, "x", channels, 8)[:, 4, 4].tolist()


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_formats(file_format) -> None:
    image = Image.new("RGB", (20, 10), RED)
    assert color(encode(image, file_format)) == pytest.approx(RED, abs=4)


@pytest.mark.parametrize(
    ("image", "file_format", "expected"),
    [
        (Image.new("L", (9, 9), 100), "PNG", (100, 100, 100)),
        (Image.new("1", (9, 9), 1), "PNG", (255, 255, 255)),
        (Image.new("RGB", (9, 9), RED).convert("P"), "PNG", RED),
        (Image.new("RGB", (9, 9), RED).convert("CMYK"), "JPEG", RED),
        (Image.new("LA", (9, 9), (0, 0)), "PNG", (255, 255, 255)),
        (Image.new("RGBA", (9, 9), (255, 0, 0, 0)), "PNG", (255, 255, 255)),
        (Image.new("RGBA", (9, 9), (255, 0, 0, 128)), "WEBP", (255, 127, 127)),
        (Image.fromarray(np.full((9, 9), 25600, dtype=np.uint16)), "PNG", (100, 100, 100)),
    ],
    ids=["gray", "black and white", "palette", "CMYK", "gray and alpha", "transparent", "half", "16 bits"],
)
def test_modes_become_rgb(image, file_format, expected) -> None:
    assert color(encode(image, file_format)) == pytest.approx(expected, abs=4)


def test_a_palette_with_a_transparent_color() -> None:
    image = Image.new("P", (9, 9), 0)
    image.putpalette([255, 0, 0] * 256)
    assert color(encode(image, "GIF", transparency=0)) == [255, 255, 255]


def test_one_channel_is_gray() -> None:
    assert color(encode(Image.new("RGB", (9, 9), RED)), 1) == [76]


def test_the_first_frame_of_an_animation() -> None:
    frames = [Image.new("RGB", (9, 9), shade) for shade in (RED, (0, 0, 255))]
    assert color(encode(frames[0], "GIF", save_all=True, append_images=frames[1:])) == pytest.approx(RED, abs=4)


def test_the_orientation_of_a_camera() -> None:
    image = Image.new("RGB", (8, 8))
    image.paste(RED, (0, 0, 8, 4))
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned, so the top of the file is the right side of the picture
    pixels = decode(encode(image, "PNG", exif=exif), "x", 3, 8)
    assert pixels[0, 4].tolist() == [0, 0, 0, 0, 255, 255, 255, 255]


def test_the_center_square_is_kept() -> None:
    image = Image.new("RGB", (30, 10))
    image.paste(RED, (10, 0, 20, 10))
    assert (decode(encode(image), "x", 3, 8)[0] > 200).all()


def test_a_large_photograph_is_decoded_like_a_small_one() -> None:
    rng = np.random.default_rng(0)
    small = Image.fromarray(rng.integers(0, 256, (6, 8, 3), dtype=np.uint8))
    large = small.resize((1600, 1200), Image.Resampling.BICUBIC)
    whole = large.crop((200, 0, 1400, 1200)).resize((32, 32), Image.Resampling.BICUBIC)
    pixels = decode(encode(large, "JPEG", quality=95), "x", 3, 32).transpose(1, 2, 0)
    assert np.abs(pixels.astype(int) - np.asarray(whole).astype(int)).max() <= 4


@pytest.mark.parametrize("file_format", ["PNG", "JPEG", "WEBP", "BMP", "GIF"])
def test_a_truncated_file_is_named(file_format) -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8))
    content = encode(noise, file_format)
    for length in (0, 10, 40, len(content) // 2):
        with pytest.raises(UsageError, match=r"^cat\.jpg cannot be decoded as an image \(.+\); replace or remove it$"):
            decode(content[:length], "cat.jpg", 3, 32)


def test_a_missing_file() -> None:
    with pytest.raises(UsageError, match=r"^no image 'a\.jpg'; give the path of a file that ends in \.jpg, \.jpeg"):
        ImageCodec(["a"], 3, 8).read(Path("a.jpg"))
