"""What a compiled Triton kernel may use, at most."""

from fna_lightning.bench.gpu_table import Row

# all that the GPU has
REGISTERS = {"sm_80": 255, "sm_90": 255, "gfx942": 512}
SHARED_KB = {"sm_80": 160, "sm_90": 224, "gfx942": 64}
SPECIAL = {"forward": 3.2, "dq": 4.2, "dk/dv": 4.2}
# bytes per thread that may be spilled to memory: none, or an eighth of the registers
SPILL_BYTES = {"forward": 0, "dq": 128, "dk/dv": 128}
INSTRUCTIONS = 20.0


def exceeded(row: Row) -> list[str]:
    """Return the limits that a kernel exceeds, as sentences."""
    checks = [
        ("registers", row.registers, REGISTERS[row.target]),
        ("spilled bytes", row.spill_bytes, SPILL_BYTES[row.part]),
        ("KB of shared memory", row.shared_bytes / 1024, SHARED_KB[row.target]),
        ("special functions per pair", row.special, SPECIAL[row.part]),
        ("libdevice logarithms per pair", int(row.libdevice_log), 0),
    ]
    if (row.dtype, row.width, row.part) == ("bf16", 64, "forward"):
        checks.append(("instructions per pair", row.instructions, INSTRUCTIONS))
    name = f"{row.target} {row.dtype} {row.width} {row.part}"
    return [f"{name}: {value:.4g} {what}, at most {limit:g}" for what, value, limit in checks if value > limit]
