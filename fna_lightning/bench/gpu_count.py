"""Count what a compiled kernel costs: registers, spills and the instructions of its hot loop.

The machine code is read as text: SASS from the disassembler in the triton wheel, AMDGCN from the compiler. The hot
loop is the innermost loop with matrix products. Where a kernel has several, for example one for tiles inside the mask
and one for tiles on its edge, it is the one with the fewest instructions for a product.
"""

import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from fna_lightning.bench.gpu_compile import Build, require_triton

SASS = re.compile(r"^\s+/\*([0-9a-f]{4,})\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_]*(?:\.[\w.]+)?)\s*(.*?)\s*;")
AMDGCN = re.compile(r"^\s+([a-z]\w+)\s*(.*)$")
LABEL = re.compile(r"^(\.L\w+):")
HMMA = {"HMMA.16816": 16 * 8 * 16, "HMMA.1688": 16 * 8 * 8, "HMMA.1684": 16 * 8 * 4}
HGMMA = re.compile(r"^HGMMA\.(\d+)x(\d+)x(\d+)")
MFMA = re.compile(r"^v_mfma_\w+?_(\d+)x(\d+)x(\d+)(?:_(\d+)b)?_")
AMD_SPECIAL = re.compile(r"^v_(exp|log|sqrt|rcp|rsq|sin|cos)_f32")
# logarithms that Triton takes from libdevice: 2-D operands are one for each pair, 1-D operands one for each row
LIBDEVICE_LOG = re.compile(r"(?:math\.log(?:2|1p)?\b|__nv_log(?:2|1p)?f).*tensor<\d+x\d+xf32")


class Instruction(NamedTuple):
    """One machine instruction; labels have an empty opcode."""

    opcode: str
    operands: str
    label: str = ""


@dataclass(frozen=True)
class Counts:
    """What a build uses; the loop counts are instructions of one thread in one iteration."""

    registers: int
    spill_bytes: int
    shared_bytes: int
    libdevice_log: bool
    loop: Counter[str]
    loop_products: int

    @property
    def instructions(self) -> int:
        return self.loop.total()

    @property
    def special(self) -> int:
        """Special-function operations: exponentials, logarithms, roots, reciprocals."""
        return sum(count for opcode, count in self.loop.items() if is_special(opcode))

    @property
    def tensor(self) -> int:
        """Tensor-core instructions."""
        return sum(count for opcode, count in self.loop.items() if products(opcode))

    @property
    def spill_instructions(self) -> int:
        """Loads and stores of spilled registers in the loop."""
        return sum(count for opcode, count in self.loop.items() if opcode.startswith(("LDL", "STL", "scratch_")))


def count(build: Build) -> Counts:
    """Return the counts of a build."""
    if build.target.is_nvidia:
        usage = _tool("cuobjdump", "-res-usage", build)
        registers = int(re.search(r"\bREG:(\d+)", usage)[1])  # type: ignore[index]
        spills = int(re.search(r"\bSTACK:(\d+)", usage)[1])  # type: ignore[index]
        code = sass_instructions(_tool("nvdisasm", "-c", build))
    else:
        text = build.asm["amdgcn"]
        registers = int(re.search(r"\.vgpr_count:\s*(\d+)", text)[1])  # type: ignore[index]
        spills = int(re.search(r"\.private_segment_fixed_size:\s*(\d+)", text)[1])  # type: ignore[index]
        code = amdgcn_instructions(text)
    body = hot_loop(code)
    opcodes = Counter(instruction.opcode for instruction in body)
    per_warp = sum(products(opcode) * number for opcode, number in opcodes.items())
    log = build.target.is_nvidia and any(LIBDEVICE_LOG.search(line) for line in build.asm["ttir"].splitlines())
    return Counts(registers, spills, build.shared_bytes, log, opcodes, per_warp * build.warps)


def is_special(opcode: str) -> bool:
    """Return whether the special-function unit executes this instruction."""
    return opcode.startswith("MUFU") or bool(AMD_SPECIAL.match(opcode))


def products(opcode: str) -> int:
    """Return the multiply-add operations of a tensor-core instruction of one warp; 0 for other instructions."""
    if opcode.startswith("HMMA"):
        return HMMA[".".join(opcode.split(".")[:2])]
    if size := HGMMA.match(opcode):
        # four warps execute it together
        return int(size[1]) * int(size[2]) * int(size[3]) // 4
    if size := MFMA.match(opcode):
        return int(size[1]) * int(size[2]) * int(size[3]) * int(size[4] or 1)
    return 0


def sass_instructions(text: str) -> list[Instruction]:
    """Return the instructions and labels of a disassembly by nvdisasm, in order."""
    code: list[Instruction] = []
    for line in text.splitlines():
        if label := LABEL.match(line):
            code.append(Instruction("", "", label[1]))
        elif match := SASS.match(line):
            code.append(Instruction(match[2], match[3]))
    return code


def amdgcn_instructions(text: str) -> list[Instruction]:
    """Return the instructions and labels of AMDGCN assembly up to the end of the kernel, in order."""
    code: list[Instruction] = []
    for line in text.splitlines():
        if line.startswith(".Lfunc_end"):
            break
        if label := LABEL.match(line):
            code.append(Instruction("", "", label[1]))
        elif match := AMDGCN.match(line.partition(";")[0]):
            code.append(Instruction(match[1], match[2].strip()))
    return code


def loops(code: list[Instruction]) -> list[list[Instruction]]:
    """Return the bodies of the innermost loops with matrix products: from a label to the branch back to it."""
    position = {entry.label: index for index, entry in enumerate(code) if entry.label}
    spans = []
    for index, entry in enumerate(code):
        if not entry.opcode.startswith(("BRA", "s_cbranch", "s_branch")):
            continue
        name = re.search(r"\.L\w+", entry.operands)
        start = position.get(name[0], index) if name else index
        if start < index and any(products(item.opcode) for item in code[start:index]):
            spans.append((start, index))
    innermost = [
        span
        for span in spans
        if not any(span != other and span[0] <= other[0] and other[1] <= span[1] for other in spans)
    ]
    return [[entry for entry in code[start : end + 1] if entry.opcode] for start, end in innermost]


def hot_loop(code: list[Instruction]) -> list[Instruction]:
    """Return the loop with the fewest instructions for a matrix product."""
    bodies = loops(code)
    if not bodies:
        raise ValueError("no loop with matrix products in the machine code")
    return min(bodies, key=_cost)


def _cost(body: Iterable[Instruction]) -> float:
    opcodes = [entry.opcode for entry in body]
    return len(opcodes) / sum(products(opcode) for opcode in opcodes)


def _tool(name: str, option: str, build: Build) -> str:
    """Run a tool of the triton wheel on the cubin of a build, and return what it prints."""
    tool = Path(require_triton().__file__).parent / "backends" / "nvidia" / "bin" / name
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(build.asm["cubin"])
        file.flush()
        return subprocess.run([str(tool), option, file.name], capture_output=True, text=True, check=True).stdout
