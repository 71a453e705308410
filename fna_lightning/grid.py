"""A grid of runs: configurations x values of their keys x seeds."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

from fna_lightning.run_folder import read_results


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Args:
        config: the configuration file.
        overrides: (key, value) pairs laid over it.
        seed: of the run.
    """

    config: str
    overrides: tuple[tuple[str, str], ...]
    seed: int

    @property
    def label(self) -> str:
        """What the run is called in tables, whatever its seed."""
        settings = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.overrides)
        return f"{Path(self.config).stem} {settings}".strip()

    def folder(self, root: Path) -> Path:
        """Return the run folder of this cell."""
        return root / re.sub(r"[^\w.=+-]+", "_", self.label) / f"seed_{self.seed}"

    def finished(self, root: Path) -> bool:
        """Whether the run has been trained and tested."""
        return "test" in read_results(self.folder(root))

    def arguments(self) -> list[str]:
        """Return the arguments of ``fit`` for this cell."""
        given = ["--config", self.config, f"--seed_everything={self.seed}"]
        return [*given, *(f"--{key}={value}" for key, value in self.overrides)]


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Return key and values of ``key=value,value,...``."""
    key, equals, values = text.partition("=")
    if not equals or not key or not all(values.split(",")):
        raise ValueError(f"a grid is written key=value,value,..., got {text!r}")
    return key.removeprefix("--"), values.split(",")


def grid_cells(configs: list[str], axes: list[tuple[str, list[str]]], seeds: list[int]) -> list[Cell]:
    """Return every combination, all settings of one seed before the next seed."""
    settings = list(itertools.product(*([(key, value) for value in values] for key, values in axes)))
    return [Cell(config, setting, seed) for seed in seeds for config in configs for setting in settings]


def parse_shard(text: str) -> tuple[int, int]:
    """Return (i, n) of ``i/n``, counted from 1."""
    part, slash, whole = text.partition("/")
    if not (slash and part.isdigit() and whole.isdigit() and 1 <= int(part) <= int(whole)):
        raise ValueError(f"a shard is written i/n with 1 <= i <= n, got {text!r}")
    return int(part), int(whole)
