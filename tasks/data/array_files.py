"""Arrays in NumPy's file format. Disk space is reserved before an array is memory-mapped.

A memory-mapped file whose blocks are not allocated is sparse. If the disk is full, the first write to such a block ends
the process with SIGBUS, which cannot be reported. With the space reserved, a full disk raises an ``OSError``.
"""

import errno
import os
from pathlib import Path

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fna_lightning.utils.files import open_new

CHUNK = 1 << 20
# error numbers of file systems that cannot reserve space
_NOT_SUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)


def create_array(path: Path, dtype: DTypeLike, shape: tuple[int, ...]) -> NDArray:
    """Create the file ``path`` and return it as a writable memory-mapped array of zeros.

    Raises:
        OSError: if the disk has not enough space for the whole array.
    """
    header = {"descr": np.lib.format.dtype_to_descr(np.dtype(dtype)), "fortran_order": False, "shape": shape}
    with open_new(path) as file:
        np.lib.format.write_array_header_1_0(file, header)
        file.flush()
        reserve(file.fileno(), file.tell(), int(np.prod(shape, dtype=np.int64)) * np.dtype(dtype).itemsize)
    return np.lib.format.open_memmap(path, mode="r+")


def save_array(path: Path, array: NDArray) -> None:
    """Write an array to a new file. Unlike ``numpy.save``, a full disk raises an ``OSError`` with its ``errno``."""
    contiguous = np.ascontiguousarray(array)
    with open_new(path) as file:
        np.lib.format.write_array_header_1_0(file, np.lib.format.header_data_from_array_1_0(contiguous))
        file.write(contiguous.reshape(-1).view(np.uint8).data)


def reserve(handle: int, start: int, size: int) -> None:
    """Reserve ``size`` bytes of an open file from ``start``; zeros are written where the system cannot reserve."""
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
