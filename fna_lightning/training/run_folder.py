"""The folder of a run, ``runs/<config>/<version>/``, and its results.json."""

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

# the first process of a distributed run passes its folder to the others in this variable
RUN_DIR_VARIABLE = "FNA_RUN_DIR"


@contextmanager
def own_run_folder(folder: Path | None = None) -> Iterator[None]:
    """Context manager around one run: its processes share a folder, which the next run does not inherit.

    Locks of run folders that were taken inside are released at the end.

    Args:
        folder: folder of the run if it exists already; it is locked.
    """
    inherited = os.environ.get(RUN_DIR_VARIABLE)
    held = held_runs()
    try:
        if folder is not None:
            os.environ[RUN_DIR_VARIABLE] = str(folder)
            lock_run_folder(folder)
        yield
    finally:
        release_runs(held)
        if inherited is None:
            os.environ.pop(RUN_DIR_VARIABLE, None)
        else:
            os.environ[RUN_DIR_VARIABLE] = inherited


def new_run_folder(root: Path, name: str) -> Path:
    """Create and return ``root/name/version_N`` with the next free N; two processes never get the same folder."""
    if inherited := os.environ.get(RUN_DIR_VARIABLE):
        return Path(inherited)
    parent = root / name
    if global_rank():
        # the first process cannot pass its folder to another host; other ranks write nothing there
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
    """Lock ``folder`` so that no other run trains in it; only rank 0 takes the lock."""
    if not global_rank():
        hold_run(folder)


def global_rank() -> int:
    """Return the rank of this process as set by its launcher: torchrun, SLURM or Lightning."""
    for name in ("RANK", "SLURM_PROCID", "LOCAL_RANK"):
        if os.environ.get(name, "").isdigit():
            return int(os.environ[name])
    return 0


def run_folder_of(checkpoint: str | os.PathLike[str] | None) -> Path | None:
    """Return the run folder that contains a checkpoint, or None."""
    if checkpoint is None:
        return None
    folder = Path(checkpoint).absolute().parent.parent
    return folder if (folder / "config.yaml").is_file() else None


def read_results(folder: Path) -> dict[str, Any]:
    """Return the content of results.json in a run folder; empty if there is no such file."""
    path = folder / "results.json"
    if not path.is_file():
        return {}
    way_out = "restore it, or delete it and run `test` on the run's best checkpoint again"
    results = read_json(path, way_out)
    parts = ("run", "fit", "validate", "test")
    if not isinstance(results, dict) or any(not isinstance(results.get(part, {}), dict) for part in parts):
        raise UsageError(f"{path} does not have the structure of the results of a run; {way_out}")
    return results


def write_results(folder: Path, results: dict[str, Any]) -> Path:
    """Merge ``results`` into results.json atomically, and return its path."""
    path = folder / "results.json"
    with results_lock(folder):
        text = json.dumps({**read_results(folder), **results}, indent=2, sort_keys=True) + "\n"
        write_text(path, text)
    return path
