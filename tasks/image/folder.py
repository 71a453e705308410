"""A folder of image files as one array of pixels."""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.codec import ImageCodec

ENDINGS = (".png", ".jpg", ".jpeg")


def read_folder(folder: Path, codec: ImageCodec) -> tuple[NDArray[np.uint8], list[str]]:
    """Return the (N, C, S, S) pixels and the sorted names of all PNG and JPEG files in a folder and its subfolders."""
    if not folder.is_dir():
        raise UsageError(f"no folder {str(folder)!r}; --data.predict_folder must be a folder of PNG or JPEG files")
    files = sorted(path for path in folder.rglob("*") if path.suffix.lower() in ENDINGS and path.is_file())
    if not files:
        raise UsageError(f"the folder {str(folder)!r} contains no image; file names must end in {', '.join(ENDINGS)}")
    return np.stack([codec.read(path) for path in files]), [str(path.relative_to(folder)) for path in files]
