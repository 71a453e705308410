"""Builds of the Triton kernels of FNA for a target, data type and width, and their pairs and products."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch

from fna_lightning.bench.gpu_compile import Build, Target, compiling, require_triton
from fna_lightning.bench.gpu_count import Counts, count
from fna_lightning.bench.gpu_table import Row, row

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WIDTHS = (32, 64, 128)
# the functions that are counted, and the matrix products of each pair: q.k and weight.v; q.k, grad.v and
# weight.k; and the same with two products for the gradients
PARTS = {"forward": "forward_kernel", "dq": "query_grad_kernel", "dk/dv": "key_grad_kernel"}
PRODUCTS = {"forward": 2, "dq": 3, "dk/dv": 4}
# names of the passes in fna_lightning/attention/kernels/triton/blocks.py
PASSES = {"forward": "forward", "dq": "queries", "dk/dv": "keys"}
BATCH, HEADS, TOKENS = 2, 4, 512


def builds(target: Target, dtype: str, width: int, parts: tuple[str, ...]) -> dict[str, Build]:
    """Compile the kernels of these parts, and return their builds by part."""
    require_triton()
    from fna_lightning.attention.kernels.triton import launch, op

    q, k, v, grad = (torch.zeros(BATCH, HEADS, TOKENS, width, dtype=DTYPES[dtype]) for _ in range(4))
    per_head = torch.ones(HEADS)
    settings = (0, False, False, False, 0, 0.0)
    architecture = target.name.replace("_", "")
    with patch.object(launch, "architecture_of", lambda device: architecture), compiling(target) as compiled:
        if parts == ("forward",):
            op.forward(q, k, v, None, None, per_head, per_head, None, *settings)
        else:
            out, stats = op.forward(q, k, v, None, None, per_head, per_head, None, *settings)
            op.backward(grad, q, k, v, None, None, per_head, per_head, None, out, stats, *settings, False, False, False)
    by_name = {build.kernel: build for build in compiled}
    return {part: by_name[PARTS[part]] for part in parts}


def measure(build: Build, part: str, dtype: str, width: int) -> Row:
    """Return the row of a build."""
    counts = count(build)
    tile = (build.constants["BLOCK_M"], build.constants["BLOCK_N"])
    return row(build, counts, part, dtype, width, tile, pairs_per_thread(build, counts, part, width))


def pairs_per_thread(build: Build, counts: Counts, part: str, width: int) -> float:
    """Return the pairs of one thread in one iteration of the loop, derived from the matrix products in it."""
    precisions = [build.constants["SCORE_PRECISION"], build.constants["VALUE_PRECISION"]]
    passes = [3 if precision == "tf32x3" else 1 for precision in precisions]
    # half of the products have the values or their gradients as a factor
    scores, values = {"forward": (1, 1), "dq": (2, 1), "dk/dv": (2, 2)}[part]
    per_pair = width * (scores * passes[0] + values * passes[1])
    tiles = counts.loop_products / (per_pair * build.constants["BLOCK_M"] * build.constants["BLOCK_N"])
    if tiles < 1 or tiles != int(tiles):
        raise ValueError(f"the loop of {build.kernel} has the matrix products of {tiles:.3f} tiles, expected a whole number")
    return counts.loop_products / per_pair / build.threads
