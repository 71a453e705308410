"""The rows of `bench gpu-build` and their Markdown page."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from fna_lightning.bench.gpu_compile import Build
from fna_lightning.bench.gpu_count import Counts
from fna_lightning.bench.gpu_roofline import GPUS, Gpu, clocks, picoseconds


@dataclass(frozen=True)
class Row:
    """Costs of one kernel for one architecture, data type and width; `per pair` is per query and key of one head."""

    target: str
    dtype: str
    width: int
    part: str
    tile: tuple[int, int]
    warps: int
    stages: int
    registers: int
    spill_bytes: int
    loop_spills: int
    shared_bytes: int
    repeated: float
    instructions: float
    special: float
    tensor_instructions: int
    libdevice_log: bool
    clocks: dict[str, float]
    picoseconds: float
    dot_product_ratio: float | None = None
    dot_product_clocks: dict[str, float] | None = None

    @property
    def limit(self) -> str:
        """The slowest unit."""
        return max(self.clocks, key=self.clocks.__getitem__)


def row(build: Build, counts: Counts, part: str, dtype: str, width: int, tile: tuple[int, int], repeated: float) -> Row:
    """Return the row of one build; ``repeated`` is how often its matrix products are computed."""
    pairs = tile[0] * tile[1] / build.threads
    times = clocks(counts.loop, pairs, dtype, build.target)
    return Row(
        target=build.target.name,
        dtype=dtype,
        width=width,
        part=part,
        tile=tile,
        warps=build.warps,
        stages=build.stages,
        registers=counts.registers,
        spill_bytes=counts.spill_bytes,
        loop_spills=counts.spill_instructions,
        shared_bytes=counts.shared_bytes,
        repeated=repeated,
        instructions=counts.instructions / pairs,
        special=counts.special / pairs,
        tensor_instructions=counts.tensor,
        libdevice_log=counts.libdevice_log,
        clocks=times,
        picoseconds=picoseconds(max(times.values()), build.target),
    )


COST_COLUMNS = (
    "target",
    "type",
    "width",
    "pass",
    "tile",
    "warps",
    "stages",
    "registers",
    "spilled bytes",
    "shared KB",
    "instructions",
    "special",
    "tensor",
    "libdevice log",
)
GPU_COLUMNS = (
    "target",
    "GPU",
    "multiprocessors",
    "GHz",
    "special",
    "fp32",
    "integer",
    "issue",
    "tensor, fp32",
    "tensor, bf16",
)
TIME_COLUMNS = (
    "target",
    "type",
    "width",
    "pass",
    "special",
    "fp32",
    "integer",
    "issue",
    "tensor",
    "limit",
    "ps a pair",
    "to dot product",
)


def cost_cells(entry: Row) -> list[str]:
    """Return the cells of the first table."""
    return [
        *_names(entry),
        f"{entry.tile[0]} x {entry.tile[1]}",
        str(entry.warps),
        str(entry.stages),
        str(entry.registers),
        str(entry.spill_bytes),
        f"{entry.shared_bytes / 1024:.1f}",
        f"{entry.instructions:.1f}",
        f"{entry.special:.2f}",
        str(entry.tensor_instructions),
        "yes" if entry.libdevice_log else "no",
    ]


def time_cells(entry: Row) -> list[str]:
    """Return the cells of the second table."""
    units = ("special", "fp32", "integer", "issue", "tensor")
    times = [f"{1000 * entry.clocks[unit]:.0f}" if unit in entry.clocks else "-" for unit in units]
    ratio = f"{entry.dot_product_ratio:.2f}" if entry.dot_product_ratio is not None else "-"
    return [*_names(entry), *times, entry.limit, f"{entry.picoseconds:.2f}", ratio]


def markdown(rows: Sequence[Row], command: str, versions: dict[str, Any], failures: Sequence[str]) -> str:
    """Return the page docs/results/gpu_build.md; ``failures`` are the limits that are exceeded."""
    limits = "All limits of `fna_lightning/bench/gpu_limits.py` are kept."
    if failures:
        limits = "These limits of `fna_lightning/bench/gpu_limits.py` are exceeded:\n\n"
        limits += "\n".join(f"- {failure}" for failure in failures)
    return PAGE.format(
        command=command,
        versions=", ".join(f"{name} {version}" for name, version in versions.items()),
        limits=limits,
        gpus=_table(GPU_COLUMNS, [_gpu_cells(target, gpu) for target, gpu in GPUS.items()]),
        costs=_table(COST_COLUMNS, [cost_cells(entry) for entry in rows]),
        times=_table(TIME_COLUMNS, [time_cells(entry) for entry in rows]),
    )


def _gpu_cells(target: str, gpu: Gpu) -> list[str]:
    rates = (gpu.special, gpu.fp32, gpu.integer, gpu.issue, gpu.tensor["fp32"], gpu.tensor["bf16"])
    return [target, gpu.name, str(gpu.processors), str(gpu.gigahertz), *map(str, rates)]


def _names(entry: Row) -> list[str]:
    return [entry.target, entry.dtype, str(entry.width), entry.part]


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


PAGE = """# The Triton kernel, compiled without a GPU

    {command}

{versions}.

The kernels of `kernel="triton"` are compiled for three architectures exactly as a launch on such a GPU would compile
them, and the machine code is counted. Nothing here was run on a GPU: the counts are exact, the times are lower bounds.

What is compiled is power-law attention (alpha < 2) on R^d, without mask, bias or dropout. `forward` computes the
output, `dq` the gradient of the queries, `dk/dv` the gradients of keys and values. Head widths between those of the
table are padded to the next power of two.

## Costs

- `tile`: queries x keys of one iteration; `stages`: iterations whose loads overlap.
- `registers` and `spilled bytes` are per thread. NVIDIA GPUs have at most 255 registers per thread, gfx942 has 512.
- `instructions` and `special` (exponentials, logarithms, square roots, reciprocals) are per query-key pair: those of
  the loop over tiles inside the sequence, divided by the pairs per thread. Both sides of a branch are counted.
- `tensor`: tensor-core instructions of one warp in one iteration.
- `libdevice log`: whether each pair calls the logarithm of NVIDIA's libdevice, which takes about 20 instructions.

{costs}

{limits}

## The time they imply

Thousandths of a clock of one multiprocessor per pair, by the unit that executes the instructions. `limit` is the
slowest unit, and `ps a pair` its time on the whole GPU in picoseconds. `to dot product` is this time divided by that of
the same kernel compiled with dot-product scores. `special` includes conversions that the same unit executes.

{times}

Operations per clock and multiprocessor:

{gpus}

On gfx942 the vector units execute fp32 and integer instructions; both are under `fp32`. Products of fp32 are three TF32
products on NVIDIA GPUs, and fp32 products on gfx942.

## What is unknown

- Measured times. The bound assumes that all units overlap and never wait; kernels reach a part of it.
- Whether special functions and other vector instructions overlap on gfx942. If not, `special` and `fp32` add up.
- Shared-memory bandwidth, bank conflicts, cache misses and the number of blocks that run at once are not modeled.
- The prologue, the epilogue and tiles on the edge of a mask are not counted. They matter for short sequences.
"""
