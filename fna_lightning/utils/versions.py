"""Versions of the software that a result depends on."""

import platform
from importlib.metadata import version

from fna_lightning.version import VERSION


def package_versions(*packages: str) -> dict[str, str]:
    """Return the versions of fna_lightning, Lightning, PyTorch and Python, and of other installed ``packages``."""
    names = ("lightning", "torch", *packages)
    return {"fna_lightning": VERSION, **{name: version(name) for name in names}, "python": platform.python_version()}
