"""How a picture becomes numbers and a class number a name, as plain values that travel in a checkpoint."""

import warnings
from dataclasses import asdict, dataclass
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError

# what Pillow calls a picture of so many colours
MODES = {1: "L", 3: "RGB"}
COLOURS = {1: "a grey", 3: "an RGB"}
# checked before a picture is decoded: a PNG of some kilobytes can hold more pixels than fit into memory
MAX_PIXELS = 50_000_000
MAX_BYTES = 1 << 28


@dataclass(frozen=True)
class ImageCodec:
    """What an image classifier must know of the world outside its tensors.

    Args:
        class_names: what the classes 0, 1, ... are called.
        channels: 1 for grey pictures, 3 for colours.
        image_size: pixels of a side.
    """

    class_names: list[str]
    channels: int
    image_size: int

    def state(self) -> dict[str, Any]:
        """Return plain values for a checkpoint."""
        return asdict(self)

    @classmethod
    def from_checkpoint(cls, checkpoint: dict[str, Any], path: object) -> "ImageCodec":
        """Return the codec a checkpoint carries."""
        state = checkpoint.get("codec")
        if not isinstance(state, dict) or set(state) != {"class_names", "channels", "image_size"}:
            raise UsageError(
                f"{path} carries no class names and image size: it is no image classifier trained by "
                "`fna-lightning fit`"
            )
        return cls(**state)

    def read(self, path: str | Path) -> NDArray[np.uint8]:
        """Return the (C, S, S) pixels of a picture file: its middle square, resized."""
        if not Path(path).is_file():
            raise UsageError(f"no picture {str(path)!r}; give the path of a PNG or JPEG file")
        size = Path(path).stat().st_size
        if size > MAX_BYTES:
            raise UsageError(f"{path} has {size:,} bytes, the limit is {MAX_BYTES:,}; give a smaller picture")
        return decode(Path(path).read_bytes(), str(path), self.channels, self.image_size, resize=True)


def decode(content: bytes, name: str, channels: int, image_size: int, *, resize: bool = False) -> NDArray[np.uint8]:
    """Return the (C, S, S) pixels of a PNG or JPEG file's content; ``name`` is what errors call it.

    Args:
        content: the bytes of the file.
        name: of the file.
        channels: colours it must have; transparency is laid on white.
        image_size: pixels of a side.
        resize: cut out the middle square of another size and resize it, instead of refusing it.
    """
    from PIL import Image, ImageOps

    try:
        with warnings.catch_warnings():
            # our own limit is lower, and an error
            warnings.simplefilter("ignore", Image.DecompressionBombWarning)
            # other formats are other parsers, and one of them starts a program
            picture: Image.Image = Image.open(BytesIO(content), formats=("PNG", "JPEG"))
        if picture.width * picture.height > MAX_PIXELS:
            raise UsageError(_too_large(name, f"{picture.width:,} x {picture.height:,}"))
        picture.load()
        picture = ImageOps.exif_transpose(picture)
    except Image.DecompressionBombError as error:
        raise UsageError(_too_large(name, "too many")) from error
    # Pillow: not an image, truncated, or nonsense within
    except (OSError, ValueError, SyntaxError) as error:
        reason = str(error).replace(repr(BytesIO(content)), name).partition("<")[0].strip()
        raise UsageError(f"{name} is no picture that can be read ({reason}); replace or remove it") from error
    has_colours = picture.mode not in ("1", "L", "LA", "I", "I;16", "F")
    if has_colours != (channels == 3):
        raise UsageError(
            f"{name} is {COLOURS[3 if has_colours else 1]} picture (mode {picture.mode}), expected is "
            f"{COLOURS[channels]} one; convert it, with Pillow: Image.open(file).convert({MODES[channels]!r})"
        )
    if picture.has_transparency_data:
        clear = picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", clear.size, "white"), clear)
    picture = picture.convert(MODES[channels])
    if picture.size != (image_size, image_size):
        if not resize:
            raise UsageError(
                f"{name} has {picture.width} x {picture.height} pixels, expected are {image_size} x {image_size}; "
                "resize it, or remove it"
            )
        picture = ImageOps.fit(picture, (image_size, image_size), Image.Resampling.BICUBIC)
    pixels = np.asarray(picture, dtype=np.uint8)
    return pixels[None] if channels == 1 else pixels.transpose(2, 0, 1)


def _too_large(name: str, pixels: str) -> str:
    return f"{name} has {pixels} pixels, the limit is {MAX_PIXELS:,}; make the picture smaller, or remove it"
