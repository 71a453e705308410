"""``bench attention --device cuda``: is every kernel correct on this GPU, and how fast is it?"""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from fna_lightning.attention import available_kernels
from fna_lightning.bench import gpu_cases
from fna_lightning.bench.competitors import ALPHA, BASELINE
from fna_lightning.bench.device_timer import DeviceTimer
from fna_lightning.bench.gpu_cases import Case, Implementation
from fna_lightning.bench.roofline import Peak, find_peak, shortest_ms
from fna_lightning.bench.timing import machine
from fna_lightning.errors import UsageError, one_line

Row = dict[str, Any]
NO_PEAK = "unknown GPU: no roofline"


def require_gpu() -> torch.device:
    """Return the GPU; raise a UsageError if PyTorch sees none."""
    if not torch.cuda.is_available():
        raise UsageError(
            "--device cuda needs a GPU, and PyTorch sees none here; install a CUDA or ROCm build of PyTorch on a "
            "machine with a GPU, or leave --device out to measure on the CPU"
        )
    return torch.device("cuda")


def gpu_facts(device: torch.device) -> dict[str, Any]:
    """Return name, driver, architecture and memory of the GPU, and the versions of CUDA and Triton."""
    if device.type != "cuda":
        return {"name": "none", "triton": _triton()}
    properties = torch.cuda.get_device_properties(device)
    return {
        "name": properties.name,
        "driver": _driver(),
        "capability": f"{properties.major}.{properties.minor}",
        "memory GB": round(properties.total_memory / 2**30, 1),
        "processors": properties.multi_processor_count,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": torch.backends.cudnn.version(),
        "triton": _triton(),
    }


def measure(
    cases: list[Case],
    implementations: list[Implementation],
    device: torch.device,
    timer: DeviceTimer | None,
    *,
    seconds: float,
    peak: Peak | None,
) -> list[Row]:
    """Check every implementation in every case, and time those that are correct.

    Args:
        cases: the cases.
        implementations: the implementations; the first one is the baseline of the ratios.
        device: where to compute.
        timer: measures time and memory; None only checks.
        seconds: time of one measurement.
        peak: peak numbers of the GPU; None computes no share of the roofline.
    """
    rows: list[Row] = []
    for case in cases:
        _progress(str(case))
        case_rows = []
        with matmul_precision(case.precision):
            for implementation in implementations:
                row: Row = {"case": str(case), "implementation": implementation.name, **_settings(case)}
                row |= _one_row(case, implementation, device, timer, seconds=seconds, peak=peak)
                case_rows.append(row)
        _add_ratios(case_rows)
        print_rows(case, case_rows)
        rows += case_rows
    return rows


def _one_row(
    case: Case,
    implementation: Implementation,
    device: torch.device,
    timer: DeviceTimer | None,
    *,
    seconds: float,
    peak: Peak | None,
) -> Row:
    refused = implementation.refusal(case, device)
    if refused is not None:
        return {"refused": refused}
    row: Row = {}
    try:
        row |= gpu_cases.check(implementation, case, device)
        if timer is None:
            return row
        forward, both = gpu_cases.step(implementation, case, device)
        row["first call s"] = timer.first_seconds(both)
        for name, function, backward in (("forward", forward, False), ("forward+backward", both, True)):
            row[f"{name} ms"] = timer.milliseconds(function, seconds)
            row[f"{name} MB"] = timer.peak_megabytes(function)
            if peak is not None:
                limit = shortest_ms(
                    peak,
                    case.sizes,
                    case.dtype,
                    precision=case.precision,
                    causal=case.mask == "causal",
                    backward=backward,
                    special=implementation.name.startswith("FNA,"),
                )
                row[f"{name} roofline"] = limit / row[f"{name} ms"]
    # a kernel that does not compile or runs out of memory is a result, too, and the other kernels go on
    except Exception as error:
        row["wrong" if isinstance(error, ArithmeticError) else "failed"] = one_line(error)
    return row


def run(
    device: torch.device, timer: DeviceTimer | None, cases: list[Case], *, seconds: float, json_file: Path | None
) -> int:
    """Check and time all kernels, print the tables, write the JSON; return 1 if a kernel is wrong or failed."""
    facts, peak = gpu_facts(device), find_peak(gpu_facts(device)["name"])
    print(", ".join(f"{name}: {value}" for name, value in (facts | machine()).items()))
    print(f"roofline: {NO_PEAK if peak is None else asdict(peak)}")
    for name, state in available_kernels().items():
        if name in gpu_cases.KERNEL_NAMES and state != "ok":
            print(f"{name} is not measured: {state}")
    names = gpu_cases.KERNEL_NAMES if device.type == "cuda" else (*gpu_cases.KERNEL_NAMES, "cpu")
    rows = measure(cases, gpu_cases.implementations(names), device, timer, seconds=seconds, peak=peak)
    if json_file is not None:
        document = {
            "gpu": facts,
            "machine": machine(),
            "kernels": available_kernels(),
            "alpha": ALPHA,
            "peak": NO_PEAK if peak is None else asdict(peak),
            "rows": rows,
        }
        json_file.write_text(json.dumps(document, indent=1))
        print(f"wrote {json_file}")
    bad = [row for row in rows if "wrong" in row or "failed" in row]
    print(f"\n{len(rows) - len(bad)} of {len(rows)} combinations are correct or not supported, {len(bad)} are not")
    return 1 if bad else 0


def print_rows(case: Case, rows: list[Row]) -> None:
    """Print the rows of one case."""
    print(f"\n{case}")
    for row in rows:
        name = f"  {row['implementation']:20s}"
        problem = next((f"{kind}: {row[kind]}" for kind in ("refused", "wrong", "failed") if kind in row), None)
        if problem is not None:
            print(f"{name} {problem}", flush=True)
            continue
        text = f"{name} error {row['output']:.0e}, gradient {row['gradient']:.0e}"
        for direction in ("forward", "forward+backward"):
            if f"{direction} ms" in row:
                text += f"; {direction} {row[f'{direction} ms']:.3f} ms"
                text += f" ({row[f'{direction} ratio']:.2f}x)" if f"{direction} ratio" in row else ""
                share = row.get(f"{direction} roofline")
                text += "" if share is None else f", {100 * share:.0f} % of the roofline"
                memory = row.get(f"{direction} MB")
                text += "" if memory is None else f", {memory:.0f} MB"
        text += f"; first call {row['first call s']:.1f} s" if "first call s" in row else ""
        print(text, flush=True)


@contextmanager
def matmul_precision(precision: str) -> Iterator[None]:
    """Set the precision of float32 matrix products inside the context."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision(precision)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _settings(case: Case) -> Row:
    settings = asdict(case) | {"sizes": case.sizes, "dtype": str(case.dtype).removeprefix("torch.")}
    return {name: value for name, value in settings.items() if name != "batch"}


def _add_ratios(rows: list[Row]) -> None:
    baseline = next((row for row in rows if row["implementation"] == BASELINE), {})
    for row in rows:
        for direction in ("forward", "forward+backward"):
            key = f"{direction} ms"
            if key in row and key in baseline:
                row[f"{direction} ratio"] = row[key] / baseline[key]


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        lines = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30).stdout.splitlines()
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return lines[0].strip() if lines else "unknown"


def _triton() -> str:
    # Builds for other systems have another name, and the CPU build of PyTorch has no Triton.
    for package in ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows"):
        try:
            return version(package)
        except PackageNotFoundError:
            continue
    return "none"


def _progress(text: str) -> None:
    print(f"[bench] {text}", file=sys.stderr, flush=True)
