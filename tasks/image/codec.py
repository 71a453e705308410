"""Codec of image classifiers: image files to pixels, and class numbers to names."""

import warnings
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
        if not Path(path).is_file():
            raise UsageError(f"no image {str(path)!r}; give the path of a PNG or JPEG file")
        size = Path(path).stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"{path} has {size:,} bytes, the limit is {MAX_BYTES:,}; give a smaller image")
        return decode(Path(path).read_bytes(), str(path), self.channels, self.image_size, resize=True)


def decode(content: bytes, name: str, channels: int, image_size: int, *, resize: bool = False) -> NDArray[np.uint8]:
    """Return the (C, S, S) pixels of a PNG or JPEG file.

    Args:
        content: the bytes of the file.
        name: what error messages call the image.
        channels: required number of channels; transparent images are put on a white background.
        image_size: height and width in pixels.
        resize: crop the center square of an image of another size and resize it, instead of raising an error.
    """
    from PIL import Image, ImageOps

    image = _open(content, name)
    has_colors = image.mode not in ("1", "L", "LA", "I", "I;16", "F")
    if has_colors != (channels == 3):
        raise UsageError(
            f"{name} is {COLORS[3 if has_colors else 1]} image (mode {image.mode}), expected {COLORS[channels]} image; "
            f"convert it with Pillow: Image.open(file).convert({MODES[channels]!r})"
        )
    if image.has_transparency_data:
        transparent = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", transparent.size, "white"), transparent)
    image = image.convert(MODES[channels])
    if image.size != (image_size, image_size):
        if not resize:
            raise UsageError(
                f"{name} has {image.width} x {image.height} pixels, expected {image_size} x {image_size}; resize or "
                "remove it"
            )
        image = ImageOps.fit(image, (image_size, image_size), Image.Resampling.BICUBIC)
    pixels = np.asarray(image, dtype=np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _open(content: bytes, name: str) -> "Image.Image":
    """Return the decoded image in its natural orientation, if it is within ``MAX_PIXELS``."""
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            # MAX_PIXELS is lower than Pillow's limit and raises an error
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            # every other format is another parser, and the one of EPS starts a program
            image: Image.Image = Image.open(BytesIO(content), formats=("PNG", "JPEG"))
        if image.width * image.height > MAX_PIXELS:
            raise UsageError(_too_large(name, f"{image.width:,} x {image.height:,}"))
        image.load()
        return ImageOps.exif_transpose(image)
    except Image.DecompressionBombError as error:
        raise UsageError(_too_large(name, "too many")) from error
    # Pillow raises these for another format, a truncated file or invalid content
    except (OSError, ValueError, SyntaxError) as error:
        reason = str(error).replace(repr(BytesIO(content)), name).partition("<")[0].strip()
        raise UsageError(f"{name} cannot be decoded as an image ({reason}); replace or remove it") from error


def _too_large(name: str, pixels: str) -> str:
    return f"{name} has {pixels} pixels, the limit is {MAX_PIXELS:,}; make the image smaller or remove it"
