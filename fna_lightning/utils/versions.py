"""Processor and versions of the software that a result depends on."""

import platform
from importlib.metadata import version
from pathlib import Path

from fna_lightning.version import VERSION


def package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of fna_lightning, Lightning, PyTorch and Python, and of other installed ``packages``."""
    names = ("lightning", "torch", *packages)
    return {"fna_lightning": VERSION, **{name: version(name) for name in names}, "python": platform.python_version()}


def processor() -> str:
    """Return the name of the processor, on which times depend."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()
