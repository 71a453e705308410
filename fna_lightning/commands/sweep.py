"""Train and test a grid of configurations, settings and seeds, and compare them in one table.

Every cell is a run folder; finished cells are skipped, so an interrupted sweep goes on where it stopped, and on a
cluster `--shard i/n` gives each machine its part of the same grid.

Examples:
  fna-lightning sweep --config reviews_fna.yaml --config reviews_dp.yaml --seeds 3
  fna-lightning sweep --config reviews_fna.yaml --grid model.attention.alpha=1,1.2,1.6,2 --seeds 5 --baseline alpha=2
  fna-lightning sweep --config reviews_fna.yaml --seeds 2 --set trainer.max_epochs=1
"""

import argparse
import contextlib
import json
import os
import shlex
import traceback
from pathlib import Path

from rich.console import Console

from fna_lightning.commands.guard import run_guarded
from fna_lightning.commands.train import train
from fna_lightning.config.resolve import resolve_config
from fna_lightning.errors import UsageError
from fna_lightning.experiments.grid import Cell, grid_cells, parse_axis, parse_setting, parse_shard
from fna_lightning.experiments.markdown import publish, read_published
from fna_lightning.experiments.processes import run_jobs
from fna_lightning.experiments.report import write_report
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE, read_results
from fna_lightning.training.signals import stop_by_signal
from fna_lightning.utils.console import progress_bar, wide_console
from fna_lightning.utils.files import no_follow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("--config", "-c", action="append", required=True, metavar="YAML", help="may be repeated")
    parser.add_argument("--grid", action="append", default=[], metavar="KEY=A,B", help="values of a key; repeatable")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key set in every cell")
    parser.add_argument("--seeds", type=int, default=1, help="seeds 0 ... N-1 for each setting")
    parser.add_argument("--metric", default="test/accuracy", help="what the table compares")
    parser.add_argument("--lower-is-better", action="store_true", help="for metrics such as a loss")
    parser.add_argument("--baseline", metavar="LABEL", help="part of the label the others are compared with")
    parser.add_argument(
        "--paper", type=Path, metavar="YAML", help="words of a label: a published value, to stand beside ours"
    )
    parser.add_argument("--trust", action="store_true", help="build anything that a file named config.yaml names")
    parser.add_argument("--workers", type=int, default=1, help="runs at the same time")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="run only this part of the grid")
    parser.add_argument("--no-train", action="store_true", help="train nothing: the table of the runs there are")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/sweep_<configs>")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the table as JSON here too")
    parser.add_argument("--publish", type=Path, metavar="NAME", help="copy the page to NAME.md, .json, .png")


@stop_by_signal()
def run(args: argparse.Namespace) -> int:
    """Run what is not finished, then print and write the comparison of all that is."""
    if args.seeds < 1 or args.workers < 1:
        raise ValueError(f"--seeds and --workers must be at least 1, got {args.seeds} and {args.workers}")
    configs = [resolve_config(name) for name in args.config]
    fixed = tuple(map(parse_setting, args.set))
    cells = grid_cells(configs, [*map(parse_axis, args.grid)], [*range(args.seeds)], fixed)
    part, parts = parse_shard(args.shard)
    published = read_published(args.paper) if args.paper else {}
    root = args.out or Path("runs") / ("sweep_" + "+".join(Path(config).stem for config in configs))
    todo = [cell for cell in cells[part - 1 :: parts] if not cell.finished(root)]
    console = wide_console()
    console.print(f"{len(cells)} runs in {root}, {len(todo)} to do here")
    if changed := [f"{cell.label} seed {cell.seed}" for cell in todo if cell.outdated(root)]:
        console.print(f"run again, their configuration has changed since: {', '.join(changed)}", highlight=False)
    failed = 0 if args.no_train else run_cells(todo, root, args.workers, console, trust=args.trust)
    done = {cell: read_results(cell.folder(root)) for cell in cells if cell.finished(root)}
    rows = {cell: results["test"]["metrics"].get(args.metric) for cell, results in done.items()}
    if missing := [cell.label for cell, value in rows.items() if value is None]:
        known = sorted(next(iter(done.values()))["test"]["metrics"])
        raise ValueError(f"no metric {args.metric!r} in {missing[0]}; its test measured {', '.join(known)}")
    if rows:
        report = write_report(rows, done, root, args, console, published, command_line(args), len(cells) - len(done))
        if args.json:
            args.json.write_text(json.dumps(report, indent=2) + "\n")
        if args.publish:
            publish(root, args.publish)
    elif args.no_train:
        raise UsageError(f"no finished run of this grid in {root}: leave --no-train out to make them, or give --out")
    return 1 if failed else 0


def command_line(args: argparse.Namespace) -> str:
    """Return the command that makes the same table on any machine."""
    words = ["fna-lightning", "sweep"]
    for option, values in (("--config", args.config), ("--grid", args.grid), ("--set", args.set)):
        words += [word for value in values for word in (option, value)]
    words += ["--seeds", str(args.seeds), "--metric", args.metric]
    words += ["--baseline", args.baseline] if args.baseline else []
    return shlex.join(words)


def run_cells(todo: list[Cell], root: Path, workers: int, console: Console, *, trust: bool = False) -> int:
    """Run cells, each in a process of its own, and return how many failed."""
    failed = 0
    with progress_bar(console) as bar:
        task = bar.add_task("runs", total=len(todo))

        def note(number: int, error: str | None) -> None:
            nonlocal failed
            cell = todo[number]
            failed += error is not None
            said = error or f"{read_results(cell.folder(root))['test']['metrics']}"
            console.print(f"{cell.label} seed {cell.seed}: {said}", highlight=False)
            bar.advance(task)

        # workers share the cores; a single one leaves the choice to PyTorch
        threads = max(1, (os.cpu_count() or 1) // workers) if workers > 1 else None
        run_jobs(run_cell, [(cell, root, trust) for cell in todo], note, workers=workers, threads=threads, fresh=True)
    return failed


def run_cell(cell: Cell, root: Path, trust: bool = False) -> str | None:
    """Train and test one cell, its output in log.txt of its folder; return what went wrong, if anything."""
    folder = cell.start(root)
    os.environ[RUN_DIR_VARIABLE] = str(folder)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(folder / "log.txt", "w", opener=no_follow))
        stack.enter_context(contextlib.redirect_stdout(log))
        stack.enter_context(contextlib.redirect_stderr(log))
        try:
            given = ["--trust"] if trust else []
            code = run_guarded(lambda: train(["fit", *given, *cell.arguments(), "--trainer.enable_progress_bar=false"]))
            if code == 0:
                best = folder / "checkpoints" / "best.ckpt"
                # the configuration was written a moment ago, from the one that the user gave
                words = ["test", "--trust", f"--config={folder / 'config.yaml'}", f"--ckpt_path={best}"]
                code = run_guarded(lambda: train(words))
        except Exception:
            traceback.print_exc()
            code = 1
    if code == 0:
        return None
    lines = [line for line in (folder / "log.txt").read_text().splitlines() if line.strip()]
    return f"failed with exit code {code}: {lines[-1] if lines else 'no output'} (see {folder / 'log.txt'})"
