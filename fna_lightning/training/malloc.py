"""Keeps memory that a training step frees for the next step.

By default glibc returns large freed blocks to the operating system and requests them again in the next step; the
operating system then clears every page. For a small model this takes a third of a step.
"""

import ctypes
import sys

# parameters of mallopt, from malloc.h
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
# largest block to keep, in bytes; older versions of glibc accept only the second value
LARGEST = (1 << 30, 1 << 25)
# mallopt takes an int; this value disables trimming
NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Make the C library keep freed memory for the rest of the process; return whether it does."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return any(mallopt(MMAP_THRESHOLD, size) for size in LARGEST) and bool(mallopt(TRIM_THRESHOLD, NEVER))
