"""Memory of one training step of an attention, measured in a process of its own.

The parent calls ``peak_growth``; the child runs ``main``. The child takes a small step first, so that everything that
is loaded once is loaded, then creates the inputs, resets the peak and takes the step. The memory of the output and the
gradients is not counted.
"""

import json
import subprocess
import sys
from pathlib import Path

import torch

STATUS = Path("/proc/self/status")


def peak_growth(competitor: str, shape: tuple[int, int, int, int], threads: int) -> float | None:
    """Return the peak memory growth in MB of forward and backward; None if the system has no /proc."""
    if not STATUS.is_file():
        return None
    request = json.dumps({"competitor": competitor, "shape": shape, "threads": threads})
    code = "from fna_lightning.bench.memory import main; main()"
    child = subprocess.run([sys.executable, "-c", code], input=request, capture_output=True, text=True, check=False)
    if child.returncode:
        raise RuntimeError(f"measuring the memory of {competitor} at {shape} failed:\n{child.stderr[-2000:]}")
    return float(child.stdout.splitlines()[-1])


def main() -> None:
    """Measure the request on standard input and print the MB."""
    from fna_lightning.bench.competitors import COMPETITORS

    request = json.load(sys.stdin)
    torch.set_num_threads(request["threads"])
    attend = COMPETITORS[request["competitor"]].attend

    def step(shape: tuple[int, ...]) -> tuple[int, int]:
        """Take a step; return the growth of the process and the size of its results, in bytes."""
        q, k, v = (torch.randn(shape, requires_grad=True) for _ in range(3))
        gradient = torch.randn(shape)
        _reset_peak()
        before = _status("VmRSS")
        out = attend(q, k, v, False)
        torch.autograd.grad(out, (q, k, v), gradient)
        return _status("VmHWM") - before, 4 * out.nbytes

    step((1, 1, 128, request["shape"][-1]))
    growth, results = step(tuple(request["shape"]))
    print(max(0.0, (growth - results) / 2**20))


def _reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _status(field: str) -> int:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
