"""Memory a training step frees is kept for the next step.

The C library hands large blocks back to the system when they are freed and asks for them again a moment later; the
system then clears every page anew. For a small model that is a third of a step.
"""

import ctypes
import sys

# of malloc.h
TRIM_THRESHOLD = -1
MMAP_THRESHOLD = -3
# the largest block that is kept; an older C library takes no more than the second
LARGEST = (1 << 30, 1 << 25)
# mallopt takes an int
NEVER = 2**31 - 1


def keep_freed_memory() -> bool:
    """Ask the C library to keep what is freed, for the rest of this process; return whether it will."""
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        return False
    return any(mallopt(MMAP_THRESHOLD, size) for size in LARGEST) and bool(mallopt(TRIM_THRESHOLD, NEVER))
