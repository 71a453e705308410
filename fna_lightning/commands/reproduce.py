"""Reproduce the paper's tables and figures, with a verdict for each number, in one report.

Interrupt with Ctrl-C; rerun the command to continue: finished runs and artifacts are not repeated. The report
(report.html, report.md, report.json) is written after every step with the results available so far. Models are trained
as cells of `sweep`: --runs is the folder of trained models, --shard gives each machine its part of the runs, and --set
overrides a key in every run (such runs have folders of their own).

The results of each finished run of `scoreboard` and `paper-recipes` are also written to a small file in --records.
Commit these files, and the same command continues the study from them on another machine.

  smoke   minutes on two cores, embedded data; checks that everything runs, and the theory exactly
  small   hours on two cores, real IMDb (set FNA_DATA), the paper's smallest model, fewer epochs and seeds
  paper   everything is trained as in the paper; needs GPUs and the real data

Examples:
  fna-lightning reproduce --list
  fna-lightning reproduce --scale smoke
  fna-lightning reproduce fig-spectrum prop-1 generator --json report.json
  fna-lightning reproduce fig-grid controls --scale small --workers 2 --out runs/reproduction
  fna-lightning reproduce fields --scale small --out runs/fields
  fna-lightning reproduce scoreboard --scale small --records docs/results/records
  fna-lightning reproduce --scale paper --set trainer.precision=bf16-mixed --shard 1/4
  fna-lightning reproduce --scale paper --no-train
"""

import argparse
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fna_lightning.commands.sweep import run_cell
from fna_lightning.errors import UsageError
from fna_lightning.experiments.grid import Cell, parse_setting, parse_shard
from fna_lightning.experiments.records import save_record, sync_records
from fna_lightning.experiments.runner import run_cells
from fna_lightning.training.signals import stop_by_signal
from fna_lightning.utils.console import wide_console

if TYPE_CHECKING:
    from fna_lightning.reproduction.artifact import Artifact
    from fna_lightning.reproduction.scales import Scale

SCALE_NAMES = ("smoke", "small", "paper")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``reproduce``."""
    parser.add_argument("names", nargs="*", metavar="NAME", help="tables and figures; default: all (see --list)")
    parser.add_argument("--scale", choices=SCALE_NAMES, default="smoke", help="size (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="list the artifacts and the runs each needs at the scale")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="number of concurrent runs")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/reproduce_<scale>")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="folder of the trained models (default: OUT/runs)")
    parser.add_argument(
        "--records", type=Path, metavar="DIR", help="folder of small result files (default: OUT/records)"
    )
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="set a key in every run")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="train only this part of the runs")
    parser.add_argument("--no-train", action="store_true", help="do not train: report the finished runs only")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write report.json to this file")


@stop_by_signal()
def run(args: argparse.Namespace) -> int:
    """Run everything that is not finished and write the report."""
    from fna_lightning.reproduction.artifacts import select_artifacts
    from fna_lightning.reproduction.report import report_json, write_report
    from fna_lightning.reproduction.runner import run_artifacts
    from fna_lightning.reproduction.scales import SCALES

    if args.workers < 1:
        raise UsageError(f"--workers must be at least 1, got {args.workers}")
    scale = SCALES[args.scale].with_settings(tuple(map(parse_setting, args.set)))
    artifacts, console = select_artifacts(args.names), wide_console()
    shard, shards = parse_shard(args.shard)
    out = args.out or Path("runs") / f"reproduce_{scale.name}"
    runs = args.runs or out / "runs"
    records = args.records or out / "records"
    if args.list:
        console.print(artifact_table(artifacts, scale))
        return 0
    sizes = {item.size(scale) if item.size else scale.summary for item in artifacts.values()}
    for size in sorted(sizes):
        console.print(size, highlight=False)
    needed = {name: [] if item.skip_reason(scale) else item.cells(scale) for name, item in artifacts.items()}
    cells = list(dict.fromkeys(cell for item_cells in needed.values() for cell in item_cells))
    recorded = {cell for name, item in artifacts.items() if item.records for cell in needed[name]}

    def save(cell: Cell) -> None:
        if cell in recorded:
            save_record(cell, runs, records)

    if restored := sync_records([cell for cell in cells if cell in recorded], runs, records):
        console.print(f"{restored} runs restored from {records}", highlight=False)
    try:
        without_runs = {name: item for name, item in artifacts.items() if not needed[name]}
        failed = run_artifacts(without_runs, scale, out, runs, args.workers, console, train=not args.no_train)
        write_report(artifacts, scale, out, runs)
        todo = [cell for cell in cells[shard - 1 :: shards] if not cell.finished(runs)]
        console.print(f"{len(cells)} runs in {runs}, {len(todo)} to do here", highlight=False)
        if todo and not args.no_train:
            failed += run_cells(run_cell, todo, runs, args.workers, console, finished=save)
            write_report(artifacts, scale, out, runs)
        with_runs = {name: item for name, item in artifacts.items() if needed[name]}
        failed += run_artifacts(with_runs, scale, out, runs, args.workers, console)
    finally:
        report = write_report(artifacts, scale, out, runs)
        if args.json:
            args.json.write_text(report_json(report), encoding="utf-8")
    print_outcomes(report, console)
    console.print(f"report: {out / 'report.html'}, report.md, report.json", highlight=False)
    return 1 if failed else 0


def artifact_table(artifacts: "dict[str, Artifact]", scale: "Scale") -> Table:
    """Return a table of the artifacts with the number of runs each needs."""
    table = Table("artifact", "title", "runs", title=f"scale {scale.name}", title_justify="left")
    for name, artifact in artifacts.items():
        reason = artifact.skip_reason(scale)
        count = len(dict.fromkeys(artifact.cells(scale))) if not reason else 0
        table.add_row(name, artifact.title, f"not run: {reason}" if reason else str(count) if count else "none")
    return table


def print_outcomes(report: dict[str, Any], console: Console) -> None:
    """Print one line per artifact."""
    from fna_lightning.reproduction.tables import outcome

    table = Table("artifact", "verdicts", title=report["title"], title_justify="left")
    for artifact in report["artifacts"]:
        table.add_row(artifact["name"], outcome(artifact))
    console.print(table)
