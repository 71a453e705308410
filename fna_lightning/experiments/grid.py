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

# file in the folder of a cell that stores the fingerprint of its run
FINGERPRINT_FILE = "cell.txt"


@dataclass(frozen=True)
class Cell:
    """One run of a grid.

    Args:
        config: path of the configuration file.
        overrides: (key, value) pairs that override the configuration and differ between cells.
        seed: random seed of the run.
        fixed: (key, value) pairs that override the configuration in every cell of the grid.
    """

    config: str
    overrides: tuple[tuple[str, str], ...]
    seed: int
    fixed: tuple[tuple[str, str], ...] = ()

    @property
    def label(self) -> str:
        """Name of the run in tables; the same for every seed."""
        settings = " ".join(f"{key.rpartition('.')[2]}={value}" for key, value in self.overrides)
        return f"{Path(self.config).stem} {settings}".strip()

    def folder(self, root: Path) -> Path:
        """Return the run folder of this cell; it depends on the fixed settings too."""
        name = re.sub(r"[^\w.=+-]+", "_", self.label)
        if self.fixed:
            name += "_" + hashlib.sha256(repr(self.fixed).encode()).hexdigest()[:6]
        return root / name / f"seed_{self.seed}"

    def finished(self, root: Path) -> bool:
        """Whether the run was trained and tested with the current configuration file."""
        return "test" in read_results(self.folder(root)) and not self.outdated(root)

    def outdated(self, root: Path) -> bool:
        """Whether the configuration file changed after the run in the folder was started."""
        path = self.folder(root) / FINGERPRINT_FILE
        return path.is_file() and path.read_text() != self.fingerprint()

    def start(self, root: Path) -> Path:
        """Create an empty folder for a new run, replacing an earlier one, and return it."""
        folder = self.folder(root)
        if folder.is_dir():
            # Another sweep may be training this cell.
            require_free(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        write_text(folder / FINGERPRINT_FILE, self.fingerprint())
        return folder

    def fingerprint(self) -> str:
        """Return everything that defines the run: its arguments and the text of its configuration file."""
        return "\n".join([*self.arguments()[2:], Path(self.config).read_text()])

    def arguments(self) -> list[str]:
        """Return the command-line arguments of ``fit`` for this cell."""
        arguments = ["--config", self.config, f"--seed_everything={self.seed}"]
        return [*arguments, *(f"--{key}={value}" for key, value in (*self.fixed, *self.overrides))]


def parse_axis(text: str) -> tuple[str, list[str]]:
    """Parse ``key=value,value,...`` into the key and its values."""
    key, equals, values = text.partition("=")
    if not equals or not key or not all(values.split(",")):
        raise ValueError(f"--grid must have the form key=value,value,..., got {text!r}")
    return key.removeprefix("--"), values.split(",")


def parse_setting(text: str) -> tuple[str, str]:
    """Parse ``key=value`` into the key and its value."""
    key, equals, value = text.partition("=")
    if not equals or not key:
        raise ValueError(f"--set must have the form key=value, got {text!r}")
    return key.removeprefix("--"), value


def grid_cells(
    configs: list[str],
    axes: list[tuple[str, list[str]]],
    seeds: list[int],
    fixed: tuple[tuple[str, str], ...] = (),
) -> list[Cell]:
    """Return a cell for every combination, ordered by seed first."""
    settings = list(itertools.product(*([(key, value) for value in values] for key, values in axes)))
    return [Cell(config, setting, seed, fixed) for seed in seeds for config in configs for setting in settings]


def parse_shard(text: str) -> tuple[int, int]:
    """Parse ``i/n`` into (i, n); shards are counted from 1."""
    part, slash, whole = text.partition("/")
    if not (slash and part.isdigit() and whole.isdigit() and 1 <= int(part) <= int(whole)):
        raise ValueError(f"--shard must have the form i/n with 1 <= i <= n, got {text!r}")
    return int(part), int(whole)
