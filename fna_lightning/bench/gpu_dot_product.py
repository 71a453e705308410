"""The Triton kernels of FNA compiled with dot-product scores, as the comparison of `bench gpu-build`.

Three functions of a tile are replaced before the kernels are imported, so this module needs a process of its own:
``main`` reads cases as JSON from standard input and prints their rows. Everything else in the kernels stays the same.
"""

import json
import sys
from dataclasses import asdict

import triton
import triton.language as tl

# the Gaussian takes the second value of `distances` as its cost
GAUSSIAN = 1


@triton.jit
def distances(
    dot,
    query_norm,
    key_norm,
    per_kappa,
    TIE: tl.constexpr,
    SPHERE: tl.constexpr,
    HALF: tl.constexpr,
    BACKEND: tl.constexpr,
):
    """Return the negative dot product in place of the squared distance."""
    cost = dot * -1.0
    return cost, cost, cost


@triton.jit
def slope(z, squared, sine, PROFILE: tl.constexpr, SPHERE: tl.constexpr, HALF: tl.constexpr, BACKEND: tl.constexpr):
    """Return 1: the derivative of the cost is the same for all pairs."""
    return tl.full(z.shape, 1.0, tl.float32)


@triton.jit
def token_gradient(tokens, norm, sums, products, scale, SPHERE: tl.constexpr):
    """Return the gradient without the term of the norms."""
    return products * scale


def main() -> None:
    """Compile the cases on standard input (target, dtype, width, part) and print their rows as JSON."""
    from fna_lightning.attention.kernels.triton import scores

    for function in (distances, slope, token_gradient):
        setattr(scores, function.__name__, function)
    from fna_lightning.bench.gpu_build_cases import builds, measure
    from fna_lightning.bench.gpu_compile import TARGETS

    rows = []
    for target, dtype, width, part in json.load(sys.stdin):
        build = builds(TARGETS[target], dtype, width, (part,), GAUSSIAN)[part]
        rows.append(asdict(measure(build, part, dtype, width)))
    print(json.dumps(rows))
