"""Study the attention of a trained model as a graph: figures, JSON and one HTML page that needs no network.

Spectrum and gap, entropy, hop matrix, a path explorer, diffusion maps, ablation curves, and path length against
sequence length. --against compares with other checkpoints that have the same tokens, side by side. --text and --image
name the examples; without them, examples come from --split of the run's data. The tokens of an image are its patches,
and attention is drawn over the image. A translation model has two graphs per text, the source in the encoder and the
translation in the decoder, and a figure of the cross-attention between them. For a field model: the effective number
of neighbors of each head against the number of points, and the weights of a few queries over the map.

Examples:
  fna-lightning analyze runs/reviews_fna/version_0
  fna-lightning analyze best.ckpt --text "the plot was not what i call gripping"
  fna-lightning analyze runs/digits_fna/version_0 --split test --count 20
  fna-lightning analyze cifar.ckpt --image cat.png
  fna-lightning analyze fna.ckpt --against dp.ckpt --split test --count 100 --out comparison
  fna-lightning analyze runs/terrain_fna/version_0 --against runs/terrain_la/version_0
  fna-lightning analyze hf:my-bert --text "the plot was not what i call gripping"
"""

import argparse
import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress
from rich.table import Table

from fna_lightning.errors import UsageError
from fna_lightning.utils.console import wide_console

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fna_lightning.analysis import Report
    from fna_lightning.analysis.fields import FieldModel, FieldReport
    from fna_lightning.analysis.measurements import Tick
    from fna_lightning.analysis.report import HeadReport, HeadSummary

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "checkpoint",
        metavar="CKPT",
        help="a run folder or checkpoint of any task, or hf:FOLDER of a transformers model",
    )
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text to study; repeatable")
    parser.add_argument(
        "--image", action="append", default=[], metavar="FILE", help="an image file to study; repeatable"
    )
    parser.add_argument(
        "--split",
        choices=("train", "val", "test"),
        help="also study examples of this split (default: val, without --text and --image)",
    )
    parser.add_argument("--count", type=int, default=100, help="number of examples of the split (default: %(default)s)")
    parser.add_argument(
        "--against", action="append", default=[], metavar="CKPT", help="a checkpoint to compare with; repeatable"
    )
    parser.add_argument(
        "--max-length", type=int, default=128, help="largest number of tokens of a text (default: %(default)s)"
    )
    parser.add_argument(
        "--trust", action="store_true", help="build any function or class that the checkpoint or its config.yaml names"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the ablation (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="output folder (default: analysis in the run folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a copy of results.json to FILE")


def run(args: argparse.Namespace) -> int:
    """Study the models, write the files and print a table."""
    for name, value, least in (("--count", args.count, 1), ("--max-length", args.max_length, 2)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    if args.trust:
        log.warning("--trust: %s and its run folder may run any code they name", args.checkpoint)
    from fna_lightning.analysis.fields import open_field_model
    from fna_lightning.analysis.study_models import HF, open_model, study

    field = None if args.checkpoint.startswith(HF) else open_field_model(args.checkpoint, trust=args.trust)
    if field is not None:
        return run_field(args, field)
    models = [open_model(path, trust=args.trust) for path in (args.checkpoint, *args.against)]
    with Progress(console=wide_console(), transient=True) as progress:

        def track(description: str, total: int) -> "Tick":
            bar = progress.add_task(description, total=total, visible=total > 0)
            return lambda: progress.advance(bar)

        report = study(
            models[0],
            against=models[1:],
            texts=args.text,
            images=args.image,
            split=args.split,
            count=args.count,
            max_length=args.max_length,
            seed=args.seed,
            track=track,
        )
    path = models[0].path
    default = models[0].run_folder or (path if path.is_dir() else path.parent)
    folder = args.out or default / "analysis"
    write(report, folder, args.json)
    show(report, models[0].unit)
    print(f"open {folder / 'index.html'} in a browser; the numbers are in results.json, the figures in PNG files")
    return 0


def run_field(args: argparse.Namespace, first: "FieldModel") -> int:
    """Study field models, write the files and print a table."""
    from fna_lightning.analysis.fields import open_field_model, study_fields, write_figures
    from fna_lightning.training.run_folder import run_folder_of

    if args.text or args.image:
        raise UsageError(f"{first.path} is a field model, which reads neither texts nor images; use --split")
    models = [first]
    for path in args.against:
        other = open_field_model(path, trust=args.trust)
        if other is None:
            raise UsageError(f"{path} is not a field model, so it cannot be compared with {first.path}")
        models.append(other)
    report = study_fields(models, split=args.split or "val", count=args.count, trust=args.trust)
    folder = args.out or (run_folder_of(first.path) or first.path.parent) / "analysis"
    write_results(report, folder, args.json)
    names = write_figures(report, folder)
    show_field(report)
    print(f"results.json, {', '.join(names)} in {folder}")
    return 0


def show_field(report: "FieldReport") -> None:
    """Print the effective number of neighbors of every head and evaluation set."""
    from fna_lightning.analysis.fields import head_name

    sets = list(report.heads[0][0].neighbors)
    title = f"effective number of neighbors, mean over {report.episodes} episodes of the split {report.split!r}"
    table = Table("", "head", *sets, title=title, title_justify="left")
    for model, heads in zip(report.models, report.heads, strict=True):
        for head in heads:
            values = [head.neighbors[name] for name in sets if name in head.neighbors]
            table.add_row(model.label, head_name(head, heads), *(f"{value.mean:.1f}" for value in values))
    wide_console().print(table)


def write_results(report: "Report | FieldReport", folder: Path, copy: Path | None) -> None:
    """Write results.json to ``folder``, and to ``copy`` too."""
    from fna_lightning.analysis.report import to_json
    from fna_lightning.utils.files import write_text

    folder.mkdir(parents=True, exist_ok=True)
    results = json.dumps(to_json(report), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(folder / "results.json", results)
    if copy:
        copy.write_text(results, encoding="utf-8")


def write(report: "Report", folder: Path, copy: Path | None) -> None:
    """Write results.json, the figures and the page to ``folder``, and results.json to ``copy`` too."""
    from fna_lightning.analysis.page import render_page
    from fna_lightning.analysis.pictures import write_pictures
    from fna_lightning.utils.files import write_text

    write_results(report, folder, copy)
    write_pictures(report, folder)
    write_text(folder / "index.html", render_page(report))


def show(report: "Report", unit: str) -> None:
    """Print the mean of every measure over all heads: of the split, or of the first example."""
    from fna_lightning.graph import MEASURES

    split, first = report.split, report.examples[0]
    shown = f"{split.count} {unit} spread evenly over the split {split.name!r}" if split else first.title
    table = Table("", "heads", *MEASURES, title=f"mean over {shown} and over all heads", title_justify="left")
    notes = []
    for number, model in enumerate(report.models):
        heads = split.models[number] if split else first.models[number].heads
        cells = []
        for name in MEASURES:
            values, count = head_means(heads, name)
            total = len(heads) * (split.count if split else 1)
            cells.append(f"{sum(values) / len(values):.4f}" if values else "-")
            if values and count < total:
                notes.append(f"{model.label}: {name} is the mean over {count} of {total} values; the rest are infinite")
        layers = len({head.layer for head in heads})
        table.add_row(model.label, f"{len(heads)} in {layers} layer{'s' * (layers > 1)}", *cells)
    console = wide_console()
    console.print(table)
    for note in notes:
        console.print(note, highlight=False)


def head_means(heads: "Sequence[HeadReport | HeadSummary]", name: str) -> tuple[list[float], int]:
    """Return the finite values of a measure, one per head, and the number of finite values they are means of."""
    values, count = [], 0
    for head in heads:
        measured = head.measures.get(name, math.nan)
        value, examples = (measured, 1) if isinstance(measured, float) else (measured.mean, measured.count)
        if math.isfinite(value):
            values.append(value)
            count += examples
    return values, count
