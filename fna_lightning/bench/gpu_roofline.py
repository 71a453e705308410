"""The time that the counted instructions need at least on a GPU, by the unit that executes them.

A pair is a query and a key of one head. Each unit is assumed to be busy all the time and to overlap with all others, so
the slowest unit gives a lower bound. Waiting for memory, synchronization and the start of a tile are not modeled.
"""

from collections import Counter
from dataclasses import dataclass

from fna_lightning.bench.gpu_compile import Target
from fna_lightning.bench.gpu_count import is_special, products

FMA_PIPE = ("FADD", "FMUL", "FFMA", "IMAD")
# conversions that the special-function unit executes
CONVERSIONS = ("F2F.", "F2I.", "I2F.", "FRND.")
# executed outside the arithmetic units, or once for a whole warp
NO_ARITHMETIC = ("LD", "ST", "SHFL", "BAR", "DEPBAR", "BRA", "CALL", "WARP", "SYNCS", "UT", "NOP", "CS2R", "S2", "R2UR")


@dataclass(frozen=True)
class Gpu:
    """Rates of one streaming multiprocessor (NVIDIA) or compute unit (AMD): operations of single threads per clock."""

    name: str
    processors: int
    gigahertz: float
    special: int
    fp32: int
    integer: int
    issue: int
    # multiply-adds on the tensor cores, by data type
    tensor: dict[str, int]


# From the architecture white papers; the clock is the one that the published peak rates refer to.
GPUS = {
    "sm_80": Gpu("A100 SXM", 108, 1.41, 16, 64, 64, 128, {"fp32": 512, "bf16": 1024}),
    "sm_90": Gpu("H100 SXM", 132, 1.83, 16, 128, 64, 128, {"fp32": 1024, "bf16": 2048}),
    # fp32 and integer instructions share the vector units, which also issue one instruction for 64 threads per clock
    "gfx942": Gpu("MI300X", 304, 2.1, 16, 64, 64, 64, {"fp32": 128, "bf16": 1024}),
}


def clocks(loop: Counter[str], pairs: float, dtype: str, target: Target) -> dict[str, float]:
    """Return the clocks of one multiprocessor for a pair, by unit.

    Args:
        loop: The instructions of one thread in one iteration of the loop.
        pairs: The pairs of one thread in one iteration.
        dtype: The type of the matrix products, fp32 (TF32 on NVIDIA) or bf16.
        target: The architecture.
    """
    gpu = GPUS[target.name]
    totals: Counter[str] = Counter()
    for opcode, number in loop.items():
        # a tensor-core instruction belongs to a warp; its products are shared among the threads
        totals["tensor"] += products(opcode) * number
        for unit in _units(opcode, target):
            totals[unit] += number
    rates = {"special": gpu.special, "fp32": gpu.fp32, "integer": gpu.integer, "issue": gpu.issue}
    times = {unit: totals[unit] / rate / pairs for unit, rate in rates.items() if totals[unit]}
    times["tensor"] = totals["tensor"] / target.warp_size / gpu.tensor[dtype] / pairs
    return times


def picoseconds(clocks_per_pair: float, target: Target) -> float:
    """Return the time for a pair on the whole GPU."""
    gpu = GPUS[target.name]
    return 1000 * clocks_per_pair / (gpu.processors * gpu.gigahertz)


def _units(opcode: str, target: Target) -> list[str]:
    """Return the units that an instruction occupies, without the tensor cores."""
    if is_special(opcode) or opcode == "I2F" or opcode.startswith(CONVERSIONS):
        return ["special", "issue"] if target.is_nvidia else ["special"]
    if products(opcode):
        return ["issue"] if target.is_nvidia else []
    if not target.is_nvidia:
        return ["fp32"] if opcode.startswith("v_") else []
    if opcode.startswith(FMA_PIPE):
        return ["fp32", "issue"]
    if opcode.startswith(NO_ARITHMETIC) or opcode.startswith("U"):
        return ["issue"]
    return ["integer", "issue"]
