"""Search the block sizes of the Triton kernels by compiling them: what `blocks.py` of the kernels records.

A choice should keep the limits of ``gpu_limits``. Among those that do, the least time wins, then the fewest
instructions.
"""

import math
from collections.abc import Callable, Iterator
from itertools import product
from typing import Any
from unittest.mock import patch

from fna_lightning.bench.gpu_build_cases import PASSES, builds, measure
from fna_lightning.bench.gpu_compile import Target
from fna_lightning.bench.gpu_limits import exceeded
from fna_lightning.bench.gpu_table import Row


def candidates(target: Target, dtype: str, width: int, part: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield queries, keys, warps and stages worth compiling."""
    stages = [2] if target.is_nvidia else [1]
    if target.is_nvidia and dtype == "fp32" and width > 64:
        stages = [1, 2]
    # A program keeps the gradients or outputs of `rows` tokens, and loops over tiles of `columns` tokens.
    for rows, columns, warps, number in product((32, 64, 128), (16, 32, 64, 128), (2, 4, 8), stages):
        pairs = rows * columns // (warps * target.warp_size)
        enough_rows = rows >= (4 if target.is_nvidia else 16) * warps
        enough_warps = warps > 2 or not target.is_nvidia
        if 8 <= pairs <= 64 and enough_rows and enough_warps and (columns < 128 or part == "forward"):
            yield (columns, rows, warps, number) if part == "dk/dv" else (rows, columns, warps, number)


def search(target: Target, dtype: str, width: int, part: str, report: Callable[[Row], None] | None = None) -> list[Row]:
    """Return the rows of all candidates, the best first."""
    from fna_lightning.attention.kernels.triton import launch
    from fna_lightning.attention.kernels.triton.blocks import Blocks, block_sizes

    rows = []
    for candidate in candidates(target, dtype, width, part):
        blocks = Blocks(*candidate)

        def choose(name: Any, *args: Any, blocks: Blocks = blocks) -> Blocks:
            return blocks if name == PASSES[part] else block_sizes(name, *args)

        with patch.object(launch, "block_sizes", choose):
            row = measure(builds(target, dtype, width, (part,))[part], part, dtype, width)
        rows.append(row)
        if report is not None:
            report(row)
    return sorted(rows, key=rank)


def rank(row: Row) -> tuple[int, int, float]:
    """Return what orders the candidates: limits first, then the time in steps of 5 %, then the instructions."""
    steps = round(math.log(max(row.clocks.values())) / 0.05)
    return len(exceeded(row)), steps, row.instructions
