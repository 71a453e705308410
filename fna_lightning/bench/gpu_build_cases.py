"""Builds of the Triton kernels of FNA for a target, data type and width, and their pairs and products."""

from unittest.mock import patch

import torch

from fna_lightning.bench.gpu_compile import Build, Target, compiling, require_triton
from fna_lightning.bench.gpu_count import count
from fna_lightning.bench.gpu_table import Row, row

DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16}
WIDTHS = (32, 64, 128)
PARTS = {"forward": "forward_kernel", "dq": "query_grad_kernel", "dk/dv": "key_grad_kernel"}
# matrix products with tokens (q.k, slope.k, slope.q) and with values or their gradients, for each pair
PRODUCTS = {"forward": (1, 1), "dq": (2, 1), "dk/dv": (2, 2)}
# names of the passes in fna_lightning/attention/kernels/triton/blocks.py
PASSES = {"forward": "forward", "dq": "queries", "dk/dv": "keys"}
BATCH, HEADS, TOKENS = 2, 4, 512


def builds(target: Target, dtype: str, width: int, parts: tuple[str, ...], profile: int = 0) -> dict[str, Build]:
    """Compile the kernels of these parts, and return their builds by part; profile 0 is the power law."""
    require_triton()
    from fna_lightning.attention.kernels.triton import launch, op

    q, k, v, grad = (torch.zeros(BATCH, HEADS, TOKENS, width, dtype=DTYPES[dtype]) for _ in range(4))
    per_head = torch.ones(HEADS)
    settings = (profile, False, False, False, 0, 0.0)
    architecture = target.name.replace("_", "")
    names = [PARTS[part] for part in parts]
    with patch.object(launch, "architecture_of", lambda device: architecture), compiling(target, *names) as compiled:
        out, stats = op.forward(q, k, v, None, None, per_head, per_head, None, *settings)
        if parts != ("forward",):
            op.backward(grad, q, k, v, None, None, per_head, per_head, None, out, stats, *settings, False, False, False)
    by_name = {build.kernel: build for build in compiled}
    return {part: by_name[PARTS[part]] for part in parts}


def measure(build: Build, part: str, dtype: str, width: int) -> Row:
    """Return the row of a build."""
    counts = count(build)
    tile = (build.constants["BLOCK_M"], build.constants["BLOCK_N"])
    pairs = tile[0] * tile[1]
    # products of 1: three in TF32, or one
    passes = [3 if build.constants[f"{name}_PRECISION"] == "tf32x3" else 1 for name in ("SCORE", "VALUE")]
    scores, values = PRODUCTS[part]
    needed = pairs * width * (scores * passes[0] + values * passes[1])
    if counts.loop_products < needed:
        raise ValueError(f"the loop of {build.kernel} has {counts.loop_products} multiply-adds, expected {needed}")
    # A loop with that many instructions is never unrolled, so more products than needed are computed repeatedly.
    return row(build, counts, part, dtype, width, tile, counts.loop_products / needed)
