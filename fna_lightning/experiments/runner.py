"""Running the cells of a grid in worker processes, with a progress bar."""

import os
from collections.abc import Callable, Sequence
from pathlib import Path

from rich.console import Console

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.processes import Job, run_jobs
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.console import progress_bar


def run_cells(
    job: Job,
    cells: Sequence[Cell],
    root: Path,
    workers: int,
    console: Console,
    *,
    trust: bool = False,
    finished: Callable[[Cell], None] | None = None,
) -> int:
    """Run every cell in a new process and return the number of failures.

    Args:
        job: trains and tests one cell; called with the cell, ``root`` and ``trust``.
        cells: the runs to make.
        root: folder of all runs.
        workers: maximum number of concurrent runs; they share the cores.
        console: where results and progress are printed.
        trust: whether a run may build any class its configuration names.
        finished: called after each successful run.
    """
    failed = 0
    with progress_bar(console) as bar:
        task = bar.add_task("runs", total=len(cells))

        def done(number: int, error: str | None) -> None:
            nonlocal failed
            cell = cells[number]
            failed += error is not None
            if error is None and finished is not None:
                finished(cell)
            outcome = error or f"{read_results(cell.folder(root))['test']['metrics']}"
            console.print(f"{cell.label} seed {cell.seed}: {outcome}", highlight=False)
            bar.advance(task)

        # A single worker keeps PyTorch's default number of threads.
        threads = max(1, (os.cpu_count() or 1) // workers) if workers > 1 else None
        run_jobs(job, [(cell, root, trust) for cell in cells], done, workers=workers, threads=threads, fresh=True)
    return failed
