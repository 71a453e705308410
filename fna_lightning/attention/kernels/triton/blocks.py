"""Block sizes of the Triton kernels, by architecture, dtype and padded width. Importing this needs no Triton."""

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
    if half:
        return _half_blocks(name, architecture, width)
    return _float32_blocks(name, architecture, width)


def _half_blocks(name: Pass, architecture: Architecture, width: int) -> Blocks:
    stages = 1 if architecture == "gfx942" else 2
    if name == "forward":
        return Blocks(128, 64, 8 if width > 64 else 4, stages)
    if name == "keys":
        return Blocks(32, 64, 4, stages)
    return Blocks(64, 32, 4, stages)


def _float32_blocks(name: Pass, architecture: Architecture, width: int) -> Blocks:
    stages = 1 if architecture == "gfx942" or width > 64 else 2
    return Blocks(64 if name == "forward" else 32, 32, 4, stages)
