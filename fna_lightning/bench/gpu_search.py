"""Search the block sizes of the Triton kernels by compiling them: what `blocks.py` of the kernels records.

A choice must not spill (in the backward pass: not in the loop), fit the shared memory and compute each matrix product
once. Among these the least time wins, then the fewest instructions.
"""

import math
from collections.abc import Callable, Iterator
from typing import Any
from unittest.mock import patch

from fna_lightning.bench.gpu_cases import PASSES, builds, measure
from fna_lightning.bench.gpu_compile import Target
from fna_lightning.bench.gpu_table import Row

# KB of shared memory a program may use, and its registers per thread
SHARED_KB = {"sm_80": 160, "sm_90": 224, "gfx942": 64}
REGISTERS = {"sm_80": 255, "sm_90": 255, "gfx942": 512}
# A register file has 65,536 registers of 4 bytes (NVIDIA); gfx942 has 512 for each of 64 lanes and 4 units.
REGISTER_FILE = {"sm_80": 65536, "sm_90": 65536, "gfx942": 512 * 64 * 4}


def candidates(target: Target, dtype: str, width: int, part: str) -> Iterator[tuple[int, int, int, int]]:
    """Yield queries, keys, warps and stages worth compiling."""
    for stages in (1,) if not target.is_nvidia else (2,) if dtype == "bf16" or width < 128 else (1, 2):
        for queries in (32, 64, 128):
            for keys in (16, 32, 64, 128):
                for warps in (4, 8):
                    elements = queries * keys // (warps * target.warp_size)
                    if queries * keys <= 128 * 64 and 4 <= elements <= 64:
                        yield queries, keys, warps, stages


def search(target: Target, dtype: str, width: int, part: str, report: Callable[[Row], None] | None = None) -> list[Row]:
    """Return the rows of all candidates, the best first."""
    from fna_lightning.attention.kernels.triton import launch
    from fna_lightning.attention.kernels.triton.blocks import Blocks

    rows = []
    block_sizes = launch.block_sizes
    for candidate in candidates(target, dtype, width, part):

        def choose(name: Any, *args: Any, blocks: Blocks = Blocks(*candidate)) -> Blocks:
            return blocks if name == PASSES[part] else block_sizes(name, *args)

        with patch.object(launch, "block_sizes", choose):
            row = measure(builds(target, dtype, width, (part,))[part], part, dtype, width)
        rows.append(row)
        if report is not None:
            report(row)
    return sorted(rows, key=rank)


def rank(row: Row) -> tuple[bool, bool, int, float]:
    """Return what orders the candidates: limits first, then the time, in steps of 5 %, then the instructions."""
    steps = round(math.log(max(row.clocks.values())) / 0.05)
    spills = row.spill_bytes if row.part == "forward" else row.loop_spills
    fits = row.shared_bytes <= 1024 * SHARED_KB[row.target] and row.registers <= REGISTERS[row.target]
    return not fits, spills > 0, steps, row.instructions
