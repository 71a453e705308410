"""Time and memory of every attention kernel, as ratios to PyTorch's fused dot-product attention.

    fna-lightning bench attention --quick
    fna-lightning bench attention --json attention.json --plot attention.png
    fna-lightning bench attention --device cuda --json gpu.json

All implementations take turns in one run. The output and the gradients of each are compared with float64 before it is
timed. Memory is the peak growth of one forward and backward step beyond its inputs, output and gradients, measured in a
process of its own. Implementations that materialize the attention matrix spend most of their time in page faults unless
freed memory is kept, as `fit` does; `--keep-memory` measures with it.

`--device cuda` checks every GPU kernel against float64, forward and backward, and times those that are correct:
bfloat16 and float32 at both matmul precisions, masks, dropout, memory, the seconds of the first call, and the share of
the roofline. `--check-only` checks without timing; with TRITON_INTERPRET=1 and `--device cpu` it checks the Triton
kernel on a machine without a GPU.
"""

import argparse
import json
import sys
from dataclasses import asdict
from pathlib import Path

import torch

from fna_lightning.bench import gpu, gpu_cases
from fna_lightning.bench.attention_timing import (
    MEMORY_BY_LENGTH,
    TIME_BY_LENGTH,
    ByLength,
    MeasurementRow,
    measure,
    measure_memory,
)
from fna_lightning.bench.competitors import ALPHA, BASELINE, COMPETITORS, QUICK_SHAPES, SHAPES, Shape
from fna_lightning.bench.device_timer import CudaTimer
from fna_lightning.bench.plot import plot, slope
from fna_lightning.bench.timing import machine
from fna_lightning.training.malloc import keep_freed_memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench attention``."""
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="where to measure; default: cpu")
    parser.add_argument("--check-only", action="store_true", help="compare the kernels with float64 and time nothing")
    parser.add_argument("--quick", action="store_true", help="fewer and smaller shapes, about a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements as JSON")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write time and memory against n as PNG")
    parser.add_argument("--threads", type=int, default=None, help="number of threads; default: PyTorch's choice")
    parser.add_argument("--keep-memory", action="store_true", help="keep freed memory for the next call, as `fit` does")
    parser.add_argument("--seconds", type=float, default=None, help="time per shape and direction (10, quick: 1)")


def run(args: argparse.Namespace) -> int:
    """Measure, print the tables, and write the requested files."""
    if args.device == "cuda" or args.check_only:
        return _run_gpu(args)
    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {args.threads}")
        torch.set_num_threads(args.threads)
    if args.keep_memory:
        keep_freed_memory()
    shapes = QUICK_SHAPES if args.quick else SHAPES
    seconds = args.seconds if args.seconds is not None else 1.0 if args.quick else 10.0
    machine_facts = machine()
    print(", ".join(f"{name}: {value}" for name, value in machine_facts.items()))
    print(f"float32, alpha = {ALPHA} unless stated otherwise; best times; ratios to {BASELINE!r} in the same run")
    rows: list[MeasurementRow] = []
    for shape in shapes:
        names = [name for name, competitor in COMPETITORS.items() if competitor.supports(shape, quick=args.quick)]
        _progress(f"{shape}: {len(names)} implementations")
        shape_rows = measure(shape, names, seconds)
        rows += shape_rows
        print_table(str(shape), shape_rows)
    by_length = measure_by_length([shape for shape in shapes if shape.name == "long"], rows)
    print_by_length(by_length)
    if args.plot is not None:
        plot(args.plot, by_length)
        print(f"wrote {args.plot}")
    if args.json is not None:
        document = {
            "machine": machine_facts,
            "alpha": ALPHA,
            "shapes": [asdict(shape) for shape in shapes],
            "rows": rows,
            "against n": by_length,
        }
        args.json.write_text(json.dumps(document, indent=1))
        print(f"wrote {args.json}")
    return 0


def _run_gpu(args: argparse.Namespace) -> int:
    """Measure on a GPU, or check the kernels on either device."""
    if args.plot is not None or args.keep_memory:
        raise ValueError("--plot and --keep-memory measure the CPU; leave them out, --json writes all measurements")
    device = gpu.require_gpu() if args.device == "cuda" else torch.device("cpu")
    cases = gpu_cases.timed_cases(quick=args.quick)
    if device.type == "cpu":
        # Triton's interpreter takes seconds for a case, so each setting is checked at one length.
        cases = gpu_cases.interpreted_cases()
    timer = None if args.check_only else CudaTimer()
    seconds = args.seconds if args.seconds is not None else 0.2
    return gpu.run(device, timer, cases, seconds=seconds, json_file=args.json)


def measure_by_length(shapes: list[Shape], rows: list[MeasurementRow]) -> ByLength:
    """Measure the memory of the rows of these shapes; return time and memory by implementation and length."""
    by_length: ByLength = {TIME_BY_LENGTH: {}, MEMORY_BY_LENGTH: {}}
    for shape in shapes:
        for row in rows:
            if row["shape"] == str(shape):
                _progress(f"memory of {row['competitor']} at n = {shape.length}")
                measure_memory(shape, row, by_length)
    return by_length


def print_by_length(by_length: ByLength) -> None:
    """Print time and memory against the sequence length n, with the slope on logarithmic axes."""
    for title, by_name in by_length.items():
        print(f"\n{title}, against n")
        for name, points in by_name.items():
            exponent = slope(points)
            numbers = "  ".join(f"n={n}: {value:.3g}" for n, value in points.items())
            print(f"  {name:24s} {numbers}" + ("" if exponent is None else f"  slope {exponent:.2f}"))


def print_table(title: str, rows: list[MeasurementRow]) -> None:
    """Print the rows of one shape."""
    print(f"\n{title}")
    times = f"{'forward':>12s} {'ratio':>6s} {'fwd+bwd':>12s} {'ratio':>6s}"
    print(f"  {'':24s} {times} {'error':>8s} {'gradient error':>14s}")
    for row in rows:
        print(
            f"  {row['competitor']:24s} {row['forward ms']:9.2f} ms {row['forward ratio']:6.2f} "
            f"{row['forward+backward ms']:9.2f} ms {row['forward+backward ratio']:6.2f} "
            f"{row['output']:8.0e} {row['gradient']:14.0e}",
            flush=True,
        )


def _progress(text: str) -> None:
    print(f"[bench] {text}", file=sys.stderr, flush=True)
