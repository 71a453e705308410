"""Reproduce the paper: every table and figure, with a verdict, on one page.

What is finished is not done again: stop it with Ctrl-C and start it again, and it goes on. The page (report.html,
report.md, report.json) is written after every step, with what there is. Trained models are cells of `sweep`: --runs
takes a folder of them, --shard gives each machine its part, --set lays a key over every run (in folders of its own).

  smoke   minutes on two cores, embedded data; shows that everything runs, and the theory exactly
  small   hours on two cores, real IMDb (set FNA_DATA), the paper's smallest model, fewer epochs and seeds
  paper   everything as the paper trains it; needs GPUs and the real data

Examples:
  fna-lightning reproduce --list
  fna-lightning reproduce --scale smoke
  fna-lightning reproduce fig-spectrum prop-1 generator
  fna-lightning reproduce fig-grid controls --scale small --workers 2 --out runs/reproduction
  fna-lightning reproduce --scale paper --set trainer.precision=bf16-mixed --shard 1/4
  fna-lightning reproduce --scale paper --no-train
"""

import argparse
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from fna_lightning.commands.sweep import run_cells
from fna_lightning.errors import UsageError
from fna_lightning.experiments.grid import parse_setting, parse_shard
from fna_lightning.experiments.processes import run_jobs
from fna_lightning.training.signals import stop_by_signal
from fna_lightning.utils.console import progress_bar, wide_console

if TYPE_CHECKING:
    from fna_lightning.reproduction.artifact import Piece
    from fna_lightning.reproduction.scales import Scale

SCALES = ("smoke", "small", "paper")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("pieces", nargs="*", metavar="NAME", help="tables and figures; default: all (see --list)")
    parser.add_argument("--scale", choices=SCALES, default="smoke", help="how large (default: %(default)s)")
    parser.add_argument("--list", action="store_true", help="name the pieces and what the scale runs for them")
    parser.add_argument("--workers", type=int, default=min(2, os.cpu_count() or 1), help="runs at the same time")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: runs/reproduce_<scale>")
    parser.add_argument("--runs", type=Path, metavar="DIR", help="folder of the trained models (default: OUT/runs)")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="a key set in every run")
    parser.add_argument("--shard", default="1/1", metavar="I/N", help="train only this part of the runs")
    parser.add_argument("--no-train", action="store_true", help="train nothing: the page of the runs there are")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write report.json here too")


@stop_by_signal()
def run(args: argparse.Namespace) -> int:
    """Run what is not finished and write the page."""
    from fna_lightning.reproduction.artifacts import chosen_pieces
    from fna_lightning.reproduction.scales import SCALES as SIZES

    if args.workers < 1:
        raise UsageError(f"--workers must be at least 1, got {args.workers}")
    scale = SIZES[args.scale].with_settings(tuple(map(parse_setting, args.set)))
    pieces, console = chosen_pieces(args.pieces), wide_console()
    part, parts = parse_shard(args.shard)
    out = args.out or Path("runs") / f"reproduce_{scale.name}"
    runs = args.runs or out / "runs"
    if args.list:
        console.print(listing(pieces, scale))
        return 0
    console.print(scale.says, highlight=False)
    needed = {name: [] if piece.refusal(scale) else piece.cells(scale) for name, piece in pieces.items()}
    cells = list(dict.fromkeys(cell for found in needed.values() for cell in found))
    write = page_writer(pieces, scale, out, runs, args.json)
    try:
        failed = run_pieces(
            [name for name in pieces if not needed[name]], pieces, scale, out, runs, args.workers, console
        )
        write()
        todo = [cell for cell in cells[part - 1 :: parts] if not cell.finished(runs)]
        console.print(f"{len(cells)} runs in {runs}, {len(todo)} to do here", highlight=False)
        if todo and not args.no_train:
            failed += run_cells(todo, runs, args.workers, console)
            write()
        failed += run_pieces([name for name in pieces if needed[name]], pieces, scale, out, runs, args.workers, console)
    finally:
        report = write()
    show(report, console)
    console.print(f"open {out / 'report.html'} in a browser; the same in report.md and report.json", highlight=False)
    return 1 if failed else 0


def run_pieces(
    names: list[str],
    pieces: "dict[str, Piece]",
    scale: "Scale",
    out: Path,
    runs: Path,
    workers: int,
    console: Console,
) -> int:
    """Run those of the pieces that are not done; return how many broke."""
    from fna_lightning.reproduction.runner import is_done, run_piece

    todo = [name for name in names if not is_done(pieces[name], scale, out, runs)]
    broken = 0
    with progress_bar(console) as bar:
        task = bar.add_task("pieces", total=len(todo))

        def note(number: int, error: str | None) -> None:
            nonlocal broken
            broken += bool(error)
            console.print(f"{todo[number]}: {f'broken: {error}' if error else 'done'}", highlight=False)
            bar.advance(task)

        if workers == 1 or len(todo) < 2:
            for number, name in enumerate(todo):
                note(number, run_piece(name, scale, out, runs))
        else:
            run_jobs(run_piece, [(name, scale, out, runs) for name in todo], note, workers=workers, threads=1)
    return broken


def page_writer(
    pieces: "dict[str, Piece]", scale: "Scale", out: Path, runs: Path, copy: Path | None
) -> Callable[[], dict[str, Any]]:
    """Return a function that writes the page with what there is, and returns what it says."""
    from fna_lightning.reproduction.markdown import markdown
    from fna_lightning.reproduction.page import page
    from fna_lightning.reproduction.summary import summary
    from fna_lightning.utils.files import write_text

    def write() -> dict[str, Any]:
        report = summary(pieces, scale, out, runs)
        out.mkdir(parents=True, exist_ok=True)
        text = json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
        write_text(out / "report.json", text)
        write_text(out / "report.html", page(report, out))
        write_text(out / "report.md", markdown(report))
        if copy:
            copy.write_text(text, encoding="utf-8")
        return report

    return write


def listing(pieces: "dict[str, Piece]", scale: "Scale") -> Table:
    """Return the pieces, with what the scale runs for each."""
    table = Table("piece", "what", "runs", title=f"scale {scale.name}", title_justify="left")
    for name, piece in pieces.items():
        reason = piece.refusal(scale)
        count = len(dict.fromkeys(piece.cells(scale))) if not reason else 0
        table.add_row(name, piece.title, f"not run: {reason}" if reason else str(count) if count else "none")
    return table


def show(report: dict[str, Any], console: Console) -> None:
    """Print one line a piece."""
    from fna_lightning.reproduction.markdown import outcome

    table = Table("piece", "verdicts", title=report["title"], title_justify="left")
    for piece in report["pieces"]:
        table.add_row(piece["name"], outcome(piece))
    console.print(table)
