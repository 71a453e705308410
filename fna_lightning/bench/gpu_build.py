"""Cost of the Triton kernels, compiled ahead of time for GPUs that this machine need not have.

Registers, spills and shared memory, instructions and special functions per query-key pair, and the time that these
imply on an A100, H100 and MI300X, also as a ratio to the same kernels with dot-product scores. Needs triton, no GPU.

Examples:
  fna-lightning bench gpu-build --quick
  fna-lightning bench gpu-build --target sm_90 --dtype bf16
  fna-lightning bench gpu-build --markdown gpu_build.md --json gpu_build.json
  fna-lightning bench gpu-build --search --target sm_80 --dtype bf16 --width 64 --part forward
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path
from typing import Any

from fna_lightning.bench.gpu_compile import TARGETS, require_triton
from fna_lightning.bench.gpu_limits import exceeded
from fna_lightning.bench.gpu_table import COST_COLUMNS, TIME_COLUMNS, Row, cost_cells, markdown, time_cells

DTYPES = ("fp32", "bf16")
WIDTHS = (32, 64, 128)
PARTS = ("forward", "dq", "dk/dv")
Case = tuple[str, str, int, str]
QUICK: list[Case] = [("sm_80", "bf16", 64, "forward"), ("sm_80", "bf16", 64, "dq")]
SHOWN = 5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``bench gpu-build``."""
    parser.add_argument("--target", choices=TARGETS, help="compile for this architecture only")
    parser.add_argument("--dtype", choices=DTYPES, help="compile for this data type only")
    parser.add_argument("--width", type=int, choices=WIDTHS, help="compile for this head width only")
    parser.add_argument("--part", choices=PARTS, help="compile this kernel only")
    parser.add_argument("--quick", action="store_true", help="two kernels for sm_80, without the comparison")
    parser.add_argument("--search", action="store_true", help="try all block sizes and show the best ones")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the counts as JSON")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables as a Markdown page")


def run(args: argparse.Namespace) -> int:
    """Compile, count and print."""
    from fna_lightning.utils.files import write_text

    triton = require_triton()
    cases = QUICK if args.quick else selected_cases(args)
    if args.search:
        rows = [row for case in cases for row in best_blocks(case)]
    else:
        rows = measure_cases(cases)
        if not args.quick:
            rows = compare(rows)
    show(rows)
    for failure in all_exceeded(rows):
        print(failure)
    about = {"triton": triton.__version__, **tool_versions()}
    if args.json:
        write_text(args.json, json.dumps(document(rows, about), indent=1) + "\n")
    if args.markdown:
        words = ["fna-lightning", "bench", "gpu-build", *command_line(args)]
        write_text(args.markdown, markdown(rows, shlex.join(words), about, all_exceeded(rows)))
    return 0


def all_exceeded(rows: Sequence[Row]) -> list[str]:
    """Return the limits that the kernels exceed."""
    return [failure for row in rows for failure in exceeded(row)]


def selected_cases(args: argparse.Namespace) -> list[Case]:
    """Return the cases that the options select."""
    return [
        case
        for case in product(TARGETS, DTYPES, WIDTHS, PARTS)
        if all(
            choice is None or choice == value
            for choice, value in zip((args.target, args.dtype, args.width, args.part), case, strict=True)
        )
    ]


def measure_cases(cases: Sequence[Case]) -> list[Row]:
    """Compile and count each case."""
    from fna_lightning.bench.gpu_build_cases import builds, measure

    rows = []
    for target, dtype, width, part in cases:
        build = builds(TARGETS[target], dtype, width, (part,))[part]
        rows.append(measure(build, part, dtype, width))
    return rows


def compare(rows: Sequence[Row]) -> list[Row]:
    """Return the rows with the ratio of their time to that of the same kernel with dot-product scores."""
    cases = [(row.target, row.dtype, row.width, row.part) for row in rows]
    code = "from fna_lightning.bench.gpu_dot_product import main; main()"
    child = subprocess.run(
        [sys.executable, "-c", code], input=json.dumps(cases), capture_output=True, text=True, check=False
    )
    if child.returncode:
        raise RuntimeError(f"compiling with dot-product scores failed:\n{child.stderr[-2000:]}")
    others = json.loads(child.stdout.splitlines()[-1])
    return [
        replace(row, dot_product_ratio=row.picoseconds / other["picoseconds"], dot_product_clocks=other["clocks"])
        for row, other in zip(rows, others, strict=True)
    ]


def best_blocks(case: Case) -> list[Row]:
    """Return the rows of the best block sizes of a case, the best first."""
    from fna_lightning.bench.gpu_search import search

    target, dtype, width, part = case
    return search(TARGETS[target], dtype, width, part)[:SHOWN]


def show(rows: Sequence[Row]) -> None:
    """Print both tables."""
    from rich.table import Table

    from fna_lightning.utils.console import wide_console

    costs = Table(*COST_COLUMNS, title="per thread, and per query-key pair", title_justify="left")
    times = Table(*TIME_COLUMNS, title="thousandths of a clock and processor per pair", title_justify="left")
    for row in rows:
        costs.add_row(*cost_cells(row))
        times.add_row(*time_cells(row))
    console = wide_console()
    console.print(costs)
    console.print(times)


def document(rows: Sequence[Row], about: dict[str, Any]) -> dict[str, Any]:
    """Return the JSON document."""
    return {"versions": about, "kernels": [asdict(row) | {"limit": row.limit} for row in rows]}


def command_line(args: argparse.Namespace) -> list[str]:
    """Return the options of the run that change its results."""
    words = []
    for name in ("target", "dtype", "width", "part"):
        if getattr(args, name) is not None:
            words += [f"--{name}", str(getattr(args, name))]
    return words + [f"--{name}" for name in ("quick", "search") if getattr(args, name)]


def tool_versions() -> dict[str, str]:
    """Return the versions of PyTorch and of the assembler in the triton wheel."""
    import re

    import torch
    import triton

    ptxas = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "ptxas"
    text = subprocess.run([str(ptxas), "--version"], capture_output=True, text=True, check=True).stdout
    version = re.search(r"V([\d.]+)", text)
    return {"ptxas": version[1] if version else "unknown", "torch": torch.__version__}
