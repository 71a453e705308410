"""Codec of image classifiers: image files to pixels, and class numbers to names."""

import struct
import warnings
import zlib
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.codec import Codec

if TYPE_CHECKING:
    from PIL import Image

# Pillow's modes, and the words of error messages, by the number of channels
MODES = {1: "L", 3: "RGB"}
COLORS = {1: "a gray", 3: "an RGB"}
GRAY_MODES = ("1", "L", "LA", "La", "I", "F")
# Pillow's names of the accepted formats; every other format is another parser, and the one of EPS starts a program
FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF")
ENDINGS = (".jpg", ".jpeg", ".png", ".webp", ".bmp", ".gif")
# checked before decoding: a PNG of a few kilobytes can have more pixels than fit into memory
MAX_PIXELS = 50_000_000
MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class ImageCodec(Codec, kind="image", model="an image classifier"):
    """Class names, channels and image size, stored in the checkpoint.

    Args:
        class_names: names of the classes 0, 1, ...
        channels: 1 for gray images, 3 for RGB images.
        image_size: height and width in pixels.
    """

    class_names: list[str]
    channels: int
    image_size: int

    def read(self, path: str | Path) -> NDArray[np.uint8]:
        """Return the (C, S, S) pixels of an image file: its center square, resized."""
        file = Path(path)
        if not file.is_file():
            raise UsageError(f"no image {str(path)!r}; give the path of a file that ends in {', '.join(ENDINGS)}")
        try:
            size = file.stat().st_size
            if size > MAX_BYTES:
                raise UsageError(f"{path} has {size:,} bytes, the limit is {MAX_BYTES:,}; give a smaller image")
            content = file.read_bytes()
        except OSError as error:
            raise UsageError(
                f"{path} cannot be read ({error.strerror}); change its permissions or remove it"
            ) from error
        return decode(content, str(path), self.channels, self.image_size)


def check_shape(channels: int, image_size: int) -> None:
    """Raise a ``ValueError`` unless there are 1 or 3 channels and at least one pixel."""
    if channels not in MODES:
        raise ValueError(f"channels must be 1 (gray) or 3 (color), got {channels}")
    if image_size < 1:
        raise ValueError(f"image_size must be at least 1 pixel, got {image_size}")


def decode(content: bytes, name: str, channels: int, image_size: int) -> NDArray[np.uint8]:
    """Return the (C, S, S) pixels of an image file of any size and color: its center square, resized.

    Transparent images are put on a white background. The first frame of an animation is used.

    Args:
        content: the bytes of a PNG, JPEG, WebP, BMP or GIF file.
        name: what error messages call the image.
        channels: 1 converts to gray, 3 to RGB.
        image_size: height and width of the result in pixels.
    """
    from PIL import Image, ImageOps

    image = _convert(_open(content, name, image_size), channels)
    if image.size != (image_size, image_size):
        image = ImageOps.fit(image, (image_size, image_size), Image.Resampling.BICUBIC)
    return _pixels(image)


def decode_exact(content: bytes, name: str, channels: int, image_size: int) -> NDArray[np.uint8]:
    """Return the (C, S, S) pixels of an image file that must have this number of channels and this size.

    The arguments are those of ``decode``.
    """
    image = _open(content, name)
    has_colors = not _is_gray(image)
    if has_colors != (channels == 3):
        raise UsageError(
            f"{name} is {COLORS[3 if has_colors else 1]} image (mode {image.mode}), expected {COLORS[channels]} image; "
            f"convert it with Pillow: Image.open(file).convert({MODES[channels]!r})"
        )
    if image.size != (image_size, image_size):
        raise UsageError(
            f"{name} has {image.width} x {image.height} pixels, expected {image_size} x {image_size}; resize or "
            "remove it"
        )
    return _pixels(_convert(image, channels))


def _open(content: bytes, name: str, image_size: int | None = None) -> "Image.Image":
    """Return the decoded image in its natural orientation, if it is within ``MAX_PIXELS``.

    A large JPEG file is decoded at a fraction of its size, but with at least twice ``image_size`` pixels per side.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            # MAX_PIXELS is lower than Pillow's limit and raises an error
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            image: Image.Image = Image.open(BytesIO(content), formats=FORMATS)
        if image.width * image.height > MAX_PIXELS:
            raise UsageError(_too_large(name, f"{image.width:,} x {image.height:,}"))
        if image_size is not None:
            image.draft(None, (2 * image_size, 2 * image_size))
        image.load()
        return ImageOps.exif_transpose(image)
    except Image.DecompressionBombError as error:
        raise UsageError(_too_large(name, "too many")) from error
    # Pillow raises these for another format, a truncated file or invalid content
    except (OSError, ValueError, SyntaxError, EOFError, IndexError, struct.error, zlib.error) as error:
        reason = str(error).replace(repr(BytesIO(content)), name).partition("<")[0].strip()
        raise UsageError(f"{name} cannot be decoded as an image ({reason}); replace or remove it") from error


def _is_gray(image: "Image.Image") -> bool:
    return image.mode in GRAY_MODES or image.mode.startswith("I;16")


def _convert(image: "Image.Image", channels: int) -> "Image.Image":
    """Return the image in gray or RGB, on white where it is transparent."""
    from PIL import Image

    if image.mode.startswith("I"):
        # Pillow cuts values off at 255; 16-bit images have values up to 65535
        values = np.asarray(image).astype(np.int64).clip(0, 65535)
        image = Image.fromarray((values >> 8).astype(np.uint8))
    if image.has_transparency_data:
        transparent = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", transparent.size, "white"), transparent)
    return image.convert(MODES[channels])


def _pixels(image: "Image.Image") -> NDArray[np.uint8]:
    """Return the (C, H, W) pixels of a gray or RGB image."""
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if pixels.ndim == 2 else pixels.transpose(2, 0, 1)


def _too_large(name: str, pixels: str) -> str:
    return f"{name} has {pixels} pixels, the limit is {MAX_PIXELS:,}; make the image smaller or remove it"
