"""The paper's numbers (paper.yaml) and the register of deviations (deviations.yaml)."""

from functools import cache
from importlib.resources import files
from typing import Any

import yaml


@cache
def paper_values() -> dict[str, Any]:
    """Return the content of paper.yaml."""
    return _read("paper.yaml")


@cache
def deviations() -> list[dict[str, str]]:
    """Return the content of deviations.yaml: where the paper's text, the authors' code and this library differ."""
    return _read("deviations.yaml")


def _read(name: str) -> Any:
    return yaml.safe_load(files("fna_lightning.reproduction").joinpath(name).read_text(encoding="utf-8"))
