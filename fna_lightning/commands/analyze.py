"""Study the attention of a trained model as a graph: figures, JSON and one HTML page that needs no network.

Spectrum and gap, entropy, hop matrix, a path explorer, diffusion maps, ablation curves and path length against sequence
length; with --against, the same for other checkpoints that read the same tokens, side by side. Texts are those of
--text; without it, some of --split of the data the run was trained on.

Examples:
  fna-lightning analyze runs/reviews_fna/version_0/checkpoints/best.ckpt
  fna-lightning analyze best.ckpt --text "the plot was not what i call gripping"
  fna-lightning analyze fna.ckpt --against dp.ckpt --split test --count 100 --out comparison
"""

import argparse
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress
from rich.table import Table

from fna_lightning.console import wide_console
from fna_lightning.errors import UsageError

if TYPE_CHECKING:
    from fna_lightning.report.subject import Example, Subject

# texts of a split that are shown in depth
SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("checkpoint", metavar="CKPT", help="a checkpoint of a text classification run")
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text to study; repeatable")
    parser.add_argument("--split", choices=("train", "val", "test"), help="also study texts of a split (default: val)")
    parser.add_argument("--count", type=int, default=100, help="texts of the split (default: %(default)s)")
    parser.add_argument("--against", action="append", default=[], metavar="CKPT", help="compare with; repeatable")
    parser.add_argument("--max-length", type=int, default=128, help="most tokens of a text (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="of the ablation (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: analysis in the run folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results.json here too")


def run(args: argparse.Namespace) -> int:
    """Study and write."""
    for name, value, least in (("--count", args.count, 1), ("--max-length", args.max_length, 2)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    from fna_lightning.report.page import plain, render_page, without_matrices
    from fna_lightning.report.pictures import write_pictures
    from fna_lightning.report.subject import Subject, given_texts, split_texts
    from fna_lightning.run_folder import run_folder_of

    subjects = open_all([args.checkpoint, *args.against], Subject)
    shown = given_texts(subjects[0], args.text, args.max_length)
    split = args.split or (None if args.text else "val")
    many = split_texts(subjects[0], split, args.count, args.max_length) if split else []
    shown = shown or many[:SHOWN]
    report = study(subjects, shown, many, split, args)
    folder = args.out or (run_folder_of(args.checkpoint) or Path(args.checkpoint).parent) / "analysis"
    folder.mkdir(parents=True, exist_ok=True)
    results = json.dumps(plain(without_matrices(report)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    (folder / "results.json").write_text(results, encoding="utf-8")
    if args.json:
        args.json.write_text(results, encoding="utf-8")
    write_pictures(report, folder)
    (folder / "index.html").write_text(render_page(report), encoding="utf-8")
    show(report)
    print(f"open {folder / 'index.html'} in a browser; numbers in results.json, figures as PNG beside it")
    return 0


def open_all(paths: list[str], opener: "type[Subject]") -> "list[Subject]":
    """Open the checkpoints; they must read the same tokens, and get different labels."""
    subjects = [opener.open(path) for path in paths]
    for other in subjects[1:]:
        if other.codec.tokenizer != subjects[0].codec.tokenizer:
            raise UsageError(
                f"{other.path} reads other tokens than {subjects[0].path}: there is nothing to compare token by token; "
                "analyse them one by one"
            )
    labels = [subject.label for subject in subjects]
    if len(set(labels)) == len(labels):
        return subjects
    return [
        opener(f"{subject.label} ({number})", subject.path, subject.task, subject.codec)
        for number, subject in enumerate(subjects, start=1)
    ]


def study(
    subjects: "list[Subject]",
    shown: "list[Example]",
    many: "list[Example]",
    split: str | None,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Return everything the page and results.json say, with progress bars on the way."""
    from fna_lightning.graph.ablation import KINDS
    from fna_lightning.report.study import (
        PROBABILITIES,
        align_maps,
        growth_lengths,
        study_ablation,
        study_growth,
        study_split,
        study_text,
    )
    from fna_lightning.version import VERSION

    everything = many or shown
    lengths = growth_lengths(everything, args.max_length)
    examples, overall, ablations, growths = [], [], [], []
    with Progress(console=wide_console(), transient=True) as progress:
        deep = progress.add_task("texts in depth", total=len(shown) * len(subjects))
        bars = {
            name: progress.add_task(name, total=total * len(subjects))
            for name, total in (
                ("split", len(many)),
                ("ablation", len(KINDS) * len(PROBABILITIES)),
                ("path length", len(lengths)),
            )
            if total
        }
        for example in shown:
            models = []
            for subject in subjects:
                models.append(study_text(subject, example))
                progress.advance(deep)
            align_maps(models)
            names = subjects[0].codec.class_names
            label = None if example.label is None else names[example.label]
            examples.append({"title": example.title, "words": example.words, "label": label, "models": models})
        for subject in subjects:
            if many:
                overall.append(study_split(subject, many, lambda: progress.advance(bars["split"])))
            ablations.append(study_ablation(subject, everything, args.seed, lambda: progress.advance(bars["ablation"])))
            growths.append(study_growth(subject, everything, lengths, lambda: progress.advance(bars["path length"])))
    return {
        "title": "Attention as a graph: " + " against ".join(subject.label for subject in subjects),
        "version": VERSION,
        "max_length": args.max_length,
        "seed": args.seed,
        "models": [
            {"label": subject.label, "attention": subject.attention, "checkpoint": subject.path.name}
            for subject in subjects
        ],
        "examples": examples,
        "split": {"name": split, "count": len(many), "models": overall} if many else None,
        "ablation": ablations,
        "growth": growths,
    }


def show(report: dict[str, Any]) -> None:
    """Print the mean of every measure over all heads: of the split, or of the first text."""
    from fna_lightning.graph import MEASURES

    split = report["split"]
    title = f"mean over {split['count']} texts of {split['name']}" if split else report["examples"][0]["title"]
    table = Table("", *MEASURES, title=f"{title}, all heads", title_justify="left")
    for number, model in enumerate(report["models"]):
        heads = split["models"][number] if split else report["examples"][0]["models"][number]["heads"]
        cells = []
        for name in MEASURES:
            values = [head["measures"].get(name) for head in heads]
            known = [value["mean"] if isinstance(value, dict) else value for value in values if value is not None]
            known = [value for value in known if math.isfinite(value)]
            cells.append(f"{sum(known) / len(known):.4f}" if known else "-")
        table.add_row(model["label"], *cells)
    wide_console().print(table)
