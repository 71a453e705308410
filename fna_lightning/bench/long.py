"""Long sequences: time and memory of a training step, and a decoding step over many cached keys.

A training step is forward and backward of one head, by the C kernel and by PyTorch's fused dot-product attention
(SDPA), after both were compared with float64. The slopes on logarithmic axes are 2 for time and 1 for memory if an
attention computes all pairs and stores none of them.

A decoding step has one query, so its time is that of reading the keys and values. It is compared with the time in which
this machine reads as many bytes, measured in the same run.

Examples:
  fna-lightning bench long
  fna-lightning bench long --lengths 1024,4096 --keys 10000 --threads 1
  fna-lightning bench long --json long.json --plot long.png
"""

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from fna_lightning.attention import Attention, DotProduct, Fractional
from fna_lightning.bench.attention import measure_by_length, print_by_length, print_table
from fna_lightning.bench.attention_timing import MeasurementRow, measure
from fna_lightning.bench.competitors import ALPHA, BASELINE, Shape
from fna_lightning.bench.plot import plot
from fna_lightning.bench.timing import machine, take_turns
from fna_lightning.errors import UsageError
from fna_lightning.training.malloc import keep_freed_memory

HEADS, WIDTH = 8, 32
COMPARED = ["FNA, cpu", BASELINE]
# of a decoding step, relative to the weighted mean of the absolute values
MAX_ERROR = 2e-6


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench long``."""
    parser.add_argument(
        "--lengths",
        default="4096,16384,65536",
        metavar="N,N,...",
        help="numbers of tokens of a training step (default: %(default)s)",
    )
    parser.add_argument("--keys", type=int, default=100_000, help="keys of a decoding step (default: %(default)s)")
    parser.add_argument("--threads", type=int, help="number of threads; default: PyTorch's choice")
    parser.add_argument("--seconds", type=float, default=10.0, help="time per measurement (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write time and memory against n as PNG")


def run(args: argparse.Namespace) -> int:
    """Measure, print, and write the requested files."""
    lengths = _lengths(args.lengths)
    if args.keys < 1:
        raise UsageError(f"--keys must be at least 1, got {args.keys}")
    if args.threads:
        torch.set_num_threads(args.threads)
    keep_freed_memory()
    shapes = [Shape("long", 1, 1, length, WIDTH) for length in lengths]
    rows: list[MeasurementRow] = []
    for shape in shapes:
        rows += measure(shape, COMPARED, args.seconds)
        print_table(str(shape), rows[-len(COMPARED) :])
    by_length = measure_by_length(shapes, rows)
    print_by_length(by_length)
    decoding = measure_decoding(args.keys, args.seconds)
    print(f"\none query, {HEADS} heads of width {WIDTH}, {args.keys:,} keys and values")
    print(f"  this machine reads {decoding['read GB/s']:.1f} GB/s")
    for name, step in decoding["steps"].items():
        print(
            f"  {name:24s} {step['ms']:8.2f} ms {step['GB/s']:6.1f} GB/s, {step['share']:.0%} of the read bandwidth, "
            f"error {step['error']:.0e}"
        )
    if args.plot is not None:
        plot(args.plot, by_length)
        print(f"wrote {args.plot}")
    if args.json is not None:
        report = {"machine": machine(), "alpha": ALPHA, "rows": rows, "against n": by_length, "decoding": decoding}
        args.json.write_text(json.dumps(report, indent=1) + "\n")
        print(f"wrote {args.json}")
    return 0


def _lengths(text: str) -> list[int]:
    try:
        lengths = [int(word) for word in text.split(",")]
    except ValueError:
        lengths = []
    if not lengths or min(lengths) < 1:
        raise UsageError(f"--lengths takes numbers of tokens of at least 1, separated by commas; got {text!r}")
    return lengths


def measure_decoding(keys: int, seconds: float) -> dict[str, Any]:
    """Return the bandwidth of a decoding step of each attention, and its share of the read bandwidth.

    Raises:
        RuntimeError: if an output differs from float64 by more than ``MAX_ERROR``.
    """
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(1, HEADS, 1, WIDTH, generator=generator)
    k, v = (torch.randn(1, HEADS, keys, WIDTH, generator=generator) for _ in range(2))
    attentions: dict[str, tuple[Attention, Callable[[], Tensor]]] = {
        "FNA": _decoding_step(Fractional(ALPHA), q, k, v),
        "FNA, kappa = d_H": _decoding_step(Fractional(ALPHA, kappa="vision"), q, k, v),
        BASELINE: (DotProduct(), lambda: F.scaled_dot_product_attention(q, k, v)),
    }
    size = k.nbytes + v.nbytes
    # As many bytes as the keys and values, in other memory.
    memory = torch.ones(size // 4)
    with torch.inference_mode():
        errors = {name: _error(attention, step(), q, k, v) for name, (attention, step) in attentions.items()}
        functions: dict[str, Callable[[], object]] = {name: step for name, (_, step) in attentions.items()}
        times = take_turns({**functions, "read": memory.sum}, seconds, rounds=200)
    return {
        "keys": keys,
        "heads": HEADS,
        "width": WIDTH,
        "read GB/s": size / times["read"] / 1e9,
        "steps": {
            name: {
                "ms": 1e3 * times[name],
                "GB/s": size / times[name] / 1e9,
                "share": times["read"] / times[name],
                "error": error,
            }
            for name, error in errors.items()
        },
    }


def _decoding_step(attention: Attention, q: Tensor, k: Tensor, v: Tensor) -> tuple[Attention, Callable[[], Tensor]]:
    def step() -> Tensor:
        out = attention(q, k, v)
        assert isinstance(out, Tensor)
        return out

    return attention.eval(), step


def _error(attention: Attention, out: Tensor, q: Tensor, k: Tensor, v: Tensor) -> float:
    """Return the largest error, relative to the weighted mean of the absolute values."""
    weights = attention.weights(q.double(), k.double())
    error = ((out - weights @ v.double()).abs().max() / (weights @ v.double().abs()).max()).item()
    if not error <= MAX_ERROR:
        raise RuntimeError(
            f"{attention} differs from float64 by {error:.1e}, which exceeds {MAX_ERROR:.0e}; it is not timed"
        )
    return error
