"""Reading the paper's numbers."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def paper() -> dict[str, Any]:
    """Return paper.yaml."""
    return _read("paper.yaml")


@cache
def deviations() -> list[dict[str, str]]:
    """Return the register of deviations: where the paper's text, the authors' code and we differ, and what it does."""
    return _read("deviations.yaml")


def _read(name: str) -> Any:
    return yaml.safe_load(files("fna_lightning.reproduction").joinpath(name).read_text(encoding="utf-8"))
