"""Block sizes of the Triton kernels, by architecture, dtype and padded width. Importing this needs no Triton.

They were found by compiling the kernels (`fna-lightning bench gpu-build --search`), not by measuring: few or no spilled
registers, each matrix product computed once, few instructions per pair.
"""

from typing import Literal, NamedTuple

Architecture = Literal["sm80", "sm90", "gfx942", "interpret"]
Pass = Literal["forward", "queries", "keys", "bias"]

MIN_WIDTH, MAX_WIDTH = 16, 128


class Blocks(NamedTuple):
    """Queries and keys of a tile, warps of a program, and stages of the loop over the tiles."""

    queries: int
    keys: int
    num_warps: int
    num_stages: int


def padded_width(width: int) -> int:
    """Return the power of 2 to which a width is padded: tensor cores need at least 16."""
    return max(MIN_WIDTH, 1 << (width - 1).bit_length())


# queries, keys, warps and stages for padded widths up to 32, 64 and 128
_HALF: dict[tuple[Architecture, Pass], tuple[Blocks, Blocks, Blocks]] = {
    ("sm80", "forward"): (Blocks(128, 64, 4, 2), Blocks(128, 64, 8, 2), Blocks(128, 32, 8, 2)),
    ("sm80", "queries"): (Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2)),
    ("sm80", "keys"): (Blocks(32, 64, 4, 2), Blocks(32, 64, 4, 2), Blocks(64, 64, 8, 2)),
    ("sm90", "forward"): (Blocks(128, 64, 4, 2), Blocks(128, 64, 4, 2), Blocks(128, 64, 8, 2)),
    ("sm90", "queries"): (Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2)),
    ("sm90", "keys"): (Blocks(32, 64, 4, 2), Blocks(32, 64, 4, 2), Blocks(32, 128, 8, 2)),
    ("gfx942", "forward"): (Blocks(128, 64, 4, 1), Blocks(128, 64, 4, 1), Blocks(128, 32, 4, 1)),
    ("gfx942", "queries"): (Blocks(128, 32, 4, 1), Blocks(128, 32, 4, 1), Blocks(128, 32, 4, 1)),
    ("gfx942", "keys"): (Blocks(32, 128, 4, 1), Blocks(16, 128, 4, 1), Blocks(16, 128, 4, 1)),
}
_FLOAT32: dict[tuple[Architecture, Pass], tuple[Blocks, Blocks, Blocks]] = {
    ("sm80", "forward"): (Blocks(128, 32, 8, 2), Blocks(64, 16, 4, 2), Blocks(32, 64, 8, 1)),
    ("sm80", "queries"): (Blocks(64, 32, 4, 2), Blocks(32, 32, 4, 2), Blocks(32, 64, 8, 1)),
    ("sm80", "keys"): (Blocks(16, 64, 4, 2), Blocks(32, 32, 4, 2), Blocks(64, 32, 8, 1)),
    ("sm90", "forward"): (Blocks(128, 32, 8, 2), Blocks(128, 32, 8, 2), Blocks(128, 32, 8, 1)),
    ("sm90", "queries"): (Blocks(64, 32, 4, 2), Blocks(64, 32, 4, 2), Blocks(64, 16, 4, 1)),
    ("sm90", "keys"): (Blocks(32, 64, 4, 2), Blocks(16, 64, 4, 2), Blocks(16, 64, 4, 1)),
    ("gfx942", "forward"): (Blocks(128, 32, 4, 1), Blocks(128, 32, 4, 1), Blocks(128, 32, 4, 1)),
    ("gfx942", "queries"): (Blocks(128, 32, 4, 1), Blocks(128, 16, 4, 1), Blocks(128, 16, 4, 1)),
    ("gfx942", "keys"): (Blocks(32, 128, 4, 1), Blocks(16, 128, 4, 1), Blocks(16, 128, 4, 1)),
}


def block_sizes(name: Pass, architecture: Architecture, half: bool, width: int) -> Blocks:
    """Return the blocks of a pass.

    Args:
        name: "forward", "queries" (gradient of the queries), "keys" (of keys and values) or "bias".
        architecture: the oldest one of the family: sm80 is any NVIDIA GPU before Hopper, gfx942 any AMD GPU.
        half: whether the dtype is float16 or bfloat16.
        width: the larger one of the padded widths of keys and values.
    """
    if architecture == "interpret":
        return Blocks(64, 64, 4, 1)
    table = _HALF if half else _FLOAT32
    # The gradient of the bias has the loop of the gradient of the queries, and needs fewer registers.
    return table[architecture, "queries" if name == "bias" else name][(width > 32) + (width > 64)]
