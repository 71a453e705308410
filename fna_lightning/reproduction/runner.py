"""Running artifacts; a result is stored with a hash of everything it depends on, and reused while the hash matches."""

import hashlib
import inspect
import json
import shutil
import time
import traceback
from pathlib import Path
from typing import Any

from rich.console import Console

from fna_lightning.experiments.processes import run_jobs
from fna_lightning.plotting.style import styled
from fna_lightning.reproduction.artifact import Artifact, Result
from fna_lightning.reproduction.artifacts import all_artifacts
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.console import progress_bar
from fna_lightning.utils.files import write_text
from fna_lightning.version import VERSION

RESULT_FILE = "result.json"


def artifact_folder(out: Path, name: str) -> Path:
    """Return the folder in which an artifact stores its result and its figures."""
    return out / "artifacts" / name


def artifact_key(artifact: Artifact, scale: Scale, runs: Path) -> str:
    """Return a hash of the artifact's code, the scale, the paper's values and the results of its training runs."""
    source = inspect.getsource(inspect.getmodule(artifact.run) or Artifact)
    skip_reason = artifact.skip_reason(scale)
    parts = [VERSION, artifact.name, repr(scale), source, repr(paper_values()), skip_reason]
    for cell in [] if skip_reason else artifact.cells(scale):
        parts.append(cell.fingerprint())
        finished = cell.finished(runs)
        parts.append(json.dumps(read_results(cell.folder(runs)), sort_keys=True) if finished else "missing")
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def read_result(folder: Path) -> dict[str, Any] | None:
    """Return the stored result of an artifact with its key, seconds and error; None if there is no readable one."""
    try:
        stored = json.loads((folder / RESULT_FILE).read_text())
        Result.from_dict(stored["result"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(stored)


def is_done(artifact: Artifact, scale: Scale, out: Path, runs: Path) -> bool:
    """Whether the artifact has a result without an error that still matches everything it depends on."""
    stored = read_result(artifact_folder(out, artifact.name))
    return stored is not None and not stored["error"] and stored["key"] == artifact_key(artifact, scale, runs)


def run_artifact(name: str, scale: Scale, out: Path, runs: Path, workers: int = 1, train: bool = True) -> str:
    """Run an artifact and store its result; return the error, empty if there was none."""
    artifact = all_artifacts()[name]
    folder = artifact_folder(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.perf_counter()
    error, details, result = "", "", Result()
    key = artifact_key(artifact, scale, runs)
    try:
        skip_reason = artifact.skip_reason(scale)
        context = Context(scale, runs, folder, workers, train)
        with styled():
            result = Result(not_run=skip_reason) if skip_reason else artifact.run(context)
    except Exception as exception:
        error, details = f"{type(exception).__name__}: {exception}", traceback.format_exc()
    stored = {
        "key": key,
        "seconds": round(time.perf_counter() - started, 1),
        "error": error,
        "result": result.to_dict(),
    }
    if details:
        write_text(folder / "traceback.txt", details)
    write_text(folder / RESULT_FILE, json.dumps(stored, indent=2) + "\n")
    return error


def run_artifacts(
    artifacts: dict[str, Artifact],
    scale: Scale,
    out: Path,
    runs: Path,
    workers: int,
    console: Console,
    *,
    train: bool = True,
) -> int:
    """Run the artifacts that are not done, with a progress bar; return the number of failures."""
    todo = [name for name, artifact in artifacts.items() if not is_done(artifact, scale, out, runs)]
    failed = 0
    with progress_bar(console) as bar:
        task = bar.add_task("artifacts", total=len(todo))

        def done(number: int, error: str | None) -> None:
            nonlocal failed
            failed += bool(error)
            console.print(f"{todo[number]}: {f'failed: {error}' if error else 'done'}", highlight=False)
            bar.advance(task)

        if workers == 1 or len(todo) < 2:
            for number, name in enumerate(todo):
                done(number, run_artifact(name, scale, out, runs, workers, train))
        else:
            arguments = [(name, scale, out, runs, 1, train) for name in todo]
            run_jobs(run_artifact, arguments, done, workers=workers, threads=1)
    return failed
