"""Arrays in NumPy's format on disk, whose space is reserved before they are mapped into memory.

A file that is mapped before its blocks exist is sparse. When the disk is full, the first write to such a block ends the
process with SIGBUS, which no program can report. With the space reserved, a full disk is an ``OSError``.
"""

import errno
import os
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fna_lightning.utils.files import open_new

CHUNK = 1 << 20
# what a system says that cannot reserve space
_NOT_SUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


def create_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray:
    """Return a new array of zeros that is the file ``path``; all its space on the disk is reserved.

    Raises:
        OSError: if the space is not there.
    """
    settings = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with open_new(path) as file:
        np.lib.format.write_array_header_1_0(file, settings)
        file.flush()
        reserve(file.fileno(), file.tell(), int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
    return np.lib.format.open_memmap(path, mode="r+")


def save_array(path: Path, array: NDArray) -> None:
    """Write an array to a new file; unlike ``numpy.save``, a full disk is an ``OSError`` with its number."""
    rows = np.ascontiguousarray(array)
    with open_new(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(rows))
        file.write(rows.reshape(-1).view(np.uint8).data)


def reserve(handle: int, start: int, size: int) -> None:
    """Reserve ``size`` bytes of an open file from ``start`` on, by writing zeros where the system cannot do it."""
    if size == 0:
        return
    if hasattr(os, "posix_fallocate"):
        try:
            os.posix_fallocate(handle, start, size)
        except OSError as error:
            if error.errno not in _NOT_SUPPORTED:
                raise
        else:
            return
    zeros = bytes(CHUNK)
    os.lseek(handle, start, os.SEEK_SET)
    while size > 0:
        size -= os.write(handle, zeros[: min(CHUNK, size)])
