"""Matrices of a page: two bytes per weight at most, compressed, and limited in total."""

import base64
import zlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

# window size of zlib for the format of gzip
GZIP = 31
# marks a token without a parent, and a pair without a path
NO_PARENT, NO_PATH = 0xFFFF, 0xFF
# characters of a page without Plotly, which has 2 MB: together they stay below 5 MB
BUDGET = 2_900_000
# mantissa bits of a weight: all of float16 (0.05 % rounding), or fewer if the page would exceed the budget (0.8 %)
FINE_BITS, COARSE_BITS = 10, 6


def compress(content: bytes, strategy: int = zlib.Z_DEFAULT_STRATEGY) -> str:
    """Return base64 of the content, compressed by gzip."""
    compressor = zlib.compressobj(6, zlib.DEFLATED, GZIP, zlib.DEF_MEM_LEVEL, strategy)
    return base64.b64encode(compressor.compress(content) + compressor.flush()).decode("ascii")


class MatrixStore:
    """Collects the matrices of a page until the budget is used up.

    Args:
        entries: number of weights to expect, which decides about their precision.
        budget: largest number of characters of all matrices.
    """

    def __init__(self, entries: int, budget: int) -> None:
        self.budget = budget
        # after compression, a float16 weight with its parent and its hops needs about 2.5 characters
        self.bits = FINE_BITS if 2.5 * entries < budget else COARSE_BITS
        self.texts: list[str] = []

    @property
    def rounding(self) -> str:
        """The largest relative rounding error of a weight."""
        return f"{100 * 2.0 ** -(self.bits + 1):.1g} %"

    def add(self, *matrices: NDArray[Any]) -> list[dict[str, Any]] | None:
        """Store matrices together and return their references; None if they exceed the rest of the budget."""
        if self.budget < 0:
            return None
        # this strategy compresses the noise of the low bytes better, in a third of the time
        texts = [compress(planes(matrix), zlib.Z_FILTERED) for matrix in matrices]
        self.budget -= sum(map(len, texts))
        # nothing smaller is stored later, so that the stored heads are the first ones
        if self.budget < 0:
            return None
        self.texts += texts
        start = len(self.texts) - len(texts)
        return [
            {"type": matrix.dtype.str[1:], "rows": len(matrix), "columns": matrix.shape[1], "place": start + place}
            for place, matrix in enumerate(matrices)
        ]

    def weights(self, values: NDArray[Any]) -> NDArray[np.float16]:
        """Return non-negative weights as float16, rounded to the precision of the page."""
        words = values.astype("<f2").view("<u2").astype(np.uint32)
        dropped = FINE_BITS - self.bits
        half = (1 << dropped) >> 1
        return ((words + half) >> dropped << dropped).astype("<u2").view("<f2")


def encode_parents(parents: NDArray[Any]) -> NDArray[np.uint16]:
    """Return the parents of ``graph.path_parents`` as unsigned integers, with ``NO_PARENT`` for -1."""
    return np.where(parents < 0, NO_PARENT, parents).astype("<u2")


def encode_hops(hops: NDArray[Any]) -> NDArray[np.uint8]:
    """Return hops as bytes, with ``NO_PATH`` for -1."""
    return np.where(hops < 0, NO_PATH, hops.clip(max=NO_PATH - 1)).astype("u1")


def planes(matrix: NDArray[Any]) -> bytes:
    """Return all low bytes, then all high bytes, which compress better than in turns."""
    content = np.ascontiguousarray(matrix).reshape(-1, 1).view("u1")
    return np.ascontiguousarray(content.T).tobytes()
