"""Where a run lives: ``runs/<config>/<version>/``, with everything needed to read, resume or publish it."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.training.run_lock import held_runs, hold_run, release_runs, results_lock
from fna_lightning.utils.files import cannot_write, write_text
from fna_lightning.utils.limits import read_json

# processes that a distributed run starts write to the folder of the first one
RUN_DIR_VARIABLE = "FNA_RUN_DIR"


@contextmanager
def own_run_folder(folder: Path | None = None) -> Iterator[None]:
    """Let the processes of one run write to one folder, and those of the next to another.

    Folders that are locked inside are released at the end.

    Args:
        folder: the run's, if it has one already; it is locked.
    """
    before = os.environ.get(RUN_DIR_VARIABLE)
    held = held_runs()
    try:
        if folder is not None:
            os.environ[RUN_DIR_VARIABLE] = str(folder)
            lock_run_folder(folder)
        yield
    finally:
        release_runs(held)
        if before is None:
            os.environ.pop(RUN_DIR_VARIABLE, None)
        else:
            os.environ[RUN_DIR_VARIABLE] = before


def new_run_folder(root: Path, name: str) -> Path:
    """Make and return ``root/name/version_N`` with the first free N; two runs never get the same one."""
    if inherited := os.environ.get(RUN_DIR_VARIABLE):
        return Path(inherited)
    parent = root / name
    if global_rank():
        # on another host the first process cannot pass its folder on; only that one writes
        return parent / "version_of_rank_0"
    try:
        return _next_version(parent)
    except OSError as error:
        raise UsageError(f"{cannot_write(parent, error)}; --trainer.default_root_dir names another folder") from error


def _next_version(parent: Path) -> Path:
    parent.mkdir(parents=True, exist_ok=True)
    taken = [int(path.name.removeprefix("version_")) for path in parent.glob("version_*") if path.name[8:].isdigit()]
    number = max(taken, default=-1) + 1
    while True:
        folder = parent / f"version_{number}"
        try:
            folder.mkdir()
        except FileExistsError:
            number += 1
        else:
            os.environ[RUN_DIR_VARIABLE] = str(folder)
            return folder


def lock_run_folder(folder: Path) -> None:
    """Make this process the only one that trains in ``folder``; the other ranks of its run rely on the first one."""
    if not global_rank():
        hold_run(folder)


def global_rank() -> int:
    """Return the number of this process as its launcher tells it: torchrun, SLURM, or Lightning's own."""
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def run_folder_of(checkpoint: str | os.PathLike[str] | None) -> Path | None:
    """Return the run folder a checkpoint lies in, or None if it lies in none."""
    if checkpoint is None:
        return None
    folder = Path(checkpoint).absolute().parent.parent
    return folder if (folder / "config.yaml").is_file() else None


def read_results(folder: Path) -> dict[str, Any]:
    """Return what results.json of a run says, empty if there is none yet."""
    path = folder / "results.json"
    if not path.is_file():
        return {}
    way_out = "restore it, or delete it and run `test` on the run's best checkpoint again"
    results = read_json(path, way_out)
    parts = ("run", "fit", "validate", "test")
    if not isinstance(results, dict) or any(not isinstance(results.get(part, {}), dict) for part in parts):
        raise UsageError(f"{path} does not hold what a run writes into it; {way_out}")
    return results


def write_results(folder: Path, results: dict[str, Any]) -> Path:
    """Merge ``results`` into results.json, whole or not at all."""
    path = folder / "results.json"
    with results_lock(folder):
        text = json.dumps({**read_results(folder), **results}, indent=2, sort_keys=True) + "\n"
        write_text(path, text)
    return path
