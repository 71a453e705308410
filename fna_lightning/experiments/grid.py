"""A grid of runs: configurations x values of their keys x seeds."""

import hashlib
import itertools
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from fna_lightning.training.run_folder import read_results
from fna_lightning.training.run_lock import require_free
from fna_lightning.utils.files import write_text

# in the folder of a cell: what its run was made of
FINGERPRINT_FILE = "cell.txt"


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Args:
        config: the configuration file.
        overrides: (key, value) pairs laid over it, in which the cells differ.
        seed: of the run.
        fixed: (key, value) pairs laid over every cell of the grid.
    """

    config: str
    overrides: tuple[tuple[str, str], ...]
    seed: int
    fixed: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """What the run is called in tables, whatever its seed."""
        settings = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.overrides)
        return f"{Path(self.config).stem} {settings}".strip()

    def folder(self, root: Path) -> Path:
        """Return the run folder of this cell; other fixed settings have other folders."""
        name = re.sub(r"[^\w.=+-]+", "_", self.label)
        if self.fixed:
            name += "_" + hashlib.sha256(repr(self.fixed).encode()).hexdigest()[:6]
        return root / name / f"seed_{self.seed}"

    def finished(self, root: Path) -> bool:
        """Whether the run has been trained and tested with the configuration as it is now."""
        return "test" in read_results(self.folder(root)) and not self.outdated(root)

    def outdated(self, root: Path) -> bool:
        """Whether the folder holds a run of this cell made before the configuration file was changed."""
        note = self.folder(root) / FINGERPRINT_FILE
        return note.is_file() and note.read_text() != self.fingerprint()

    def start(self, root: Path) -> Path:
        """Make the folder of a new run, with nothing left of an earlier one, and return it."""
        folder = self.folder(root)
        if folder.is_dir():
            # another sweep may be training it
            require_free(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_text(folder / FINGERPRINT_FILE, self.fingerprint())
        return folder

    def fingerprint(self) -> str:
        """Return all that defines the run: its arguments and the text of its configuration file."""
        return "\n".join([*self.arguments()[2:], Path(self.config).read_text()])

    def arguments(self) -> list[str]:
        """Return the arguments of ``fit`` for this cell."""
        given = ["--config", self.config, f"--seed_everything={self.seed}"]
        return [*given, *(f"--{key}={value}" for key, value in (*self.fixed, *self.overrides))]


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Return key and values of ``key=value,value,...``."""
    key, equals, values = text.partition("=")
    if not equals or not key or not all(values.split(",")):
        raise ValueError(f"a grid is written key=value,value,..., got {text!r}")
    return key.removeprefix("--"), values.split(",")


def parse_setting(text: str) -> tuple[str, str]:
    """Return key and value of ``key=value``."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"a setting is written key=value, got {text!r}")
    return key.removeprefix("--"), value


def grid_cells(
    configs: list[str],
    axes: list[tuple[str, list[str]]],
    seeds: list[int],
    fixed: tuple[tuple[str, str], ...] = (),
) -> list[Cell]:
    """Return every combination, all settings of one seed before the next seed."""
    settings = list(itertools.product(*([(key, value) for value in values] for key, values in axes)))
    return [Cell(config, setting, seed, fixed) for seed in seeds for config in configs for setting in settings]


def parse_shard(text: str) -> tuple[int, int]:
    """Return (i, n) of ``i/n``, counted from 1."""
    part, slash, whole = text.partition("/")
    if not (slash and part.isdigit() and whole.isdigit() and 1 <= int(part) <= int(whole)):
        raise ValueError(f"a shard is written i/n with 1 <= i <= n, got {text!r}")
    return int(part), int(whole)
