"""Study the attention of a trained model as a graph: figures, JSON and one HTML page that needs no network.

Spectrum and gap, entropy, hop matrix, a path explorer, diffusion maps, ablation curves and path length against sequence
length; with --against, the same for other checkpoints that read the same tokens, side by side. Texts are those of
--text, images those of --image; without them, some of --split of the data the run was trained on. Of an image, the
tokens are its patches, and where attention looks is drawn over it. Of a translator, the graphs are those of the source
in the encoder and of the translation in the decoder; where the translation looks in the source is drawn too.

Examples:
  fna-lightning analyze runs/reviews_fna/version_0/checkpoints/best.ckpt
  fna-lightning analyze best.ckpt --text "the plot was not what i call gripping"
  fna-lightning analyze runs/digits_fna/version_0/checkpoints/best.ckpt --split test --count 20
  fna-lightning analyze cifar.ckpt --image cat.png
  fna-lightning analyze fna.ckpt --against dp.ckpt --split test --count 100 --out comparison
  fna-lightning analyze hf:my-bert --text "the plot was not what i call gripping"
"""

import argparse
import json
import logging
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rich.progress import Progress
from rich.table import Table

from fna_lightning.errors import UsageError
from fna_lightning.tasks.translation.codec import BEGIN
from fna_lightning.utils.console import wide_console

if TYPE_CHECKING:
    from fna_lightning.analysis.models import Example, Subject
    from fna_lightning.analysis.translation_models import TranslationSubject

log = logging.getLogger(__name__)

SubjectT = TypeVar("SubjectT", bound="Subject")

# texts of a split that are shown in depth
SHOWN = 3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "checkpoint", metavar="CKPT", help="a checkpoint of a run of any task, or hf:FOLDER of a transformers model"
    )
    parser.add_argument("--text", action="append", default=[], metavar="TEXT", help="a text to study; repeatable")
    parser.add_argument("--image", action="append", default=[], metavar="FILE", help="a picture to study; repeatable")
    parser.add_argument(
        "--split", choices=("train", "val", "test"), help="also study examples of a split (default: val)"
    )
    parser.add_argument("--count", type=int, default=100, help="examples of the split (default: %(default)s)")
    parser.add_argument("--against", action="append", default=[], metavar="CKPT", help="compare with; repeatable")
    parser.add_argument("--max-length", type=int, default=128, help="most tokens of a text (default: %(default)s)")
    parser.add_argument(
        "--trust", action="store_true", help="build any function or class that the checkpoint or its config.yaml names"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the ablation (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: analysis in the run folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write results.json here too")


def run(args: argparse.Namespace) -> int:
    """Study and write."""
    for name, value, least in (("--count", args.count, 1), ("--max-length", args.max_length, 2)):
        if value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    if args.trust:
        log.warning("--trust: %s and its run folder may run any code they name", args.checkpoint)
    from fna_lightning.analysis.page import plain, render_page, without_matrices
    from fna_lightning.analysis.pictures import write_pictures
    from fna_lightning.analysis.translation_models import TranslationSubject, given_sources, split_sources
    from fna_lightning.training.run_folder import run_folder_of
    from fna_lightning.utils.files import write_text

    split = args.split or (None if args.text or args.image else "val")
    kind, paths = subject_kind(args), [args.checkpoint, *args.against]
    if issubclass(kind, TranslationSubject):
        translators = open_all(paths, TranslationSubject, args.trust)
        place = translators[0].path
        sources = given_sources(translators[0], args.text, args.max_length)
        pairs = split_sources(translators[0], split, args.count, args.max_length) if split else []
        report = study_translators(translators, sources or pairs[:SHOWN], pairs, split, args)
    else:
        subjects = open_all(paths, kind, args.trust)
        place = subjects[0].path
        shown, many = examples_of(subjects[0], split, args)
        report = study(subjects, shown or many[:SHOWN], many, split, args)
    folder = args.out or (run_folder_of(place) or (place if place.is_dir() else place.parent)) / "analysis"
    folder.mkdir(parents=True, exist_ok=True)
    results = json.dumps(plain(without_matrices(report)), indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    write_text(folder / "results.json", results)
    if args.json:
        args.json.write_text(results, encoding="utf-8")
    write_pictures(report, folder)
    write_text(folder / "index.html", render_page(report))
    show(report)
    print(f"open {folder / 'index.html'} in a browser; numbers in results.json, figures as PNG beside it")
    return 0


def subject_kind(args: argparse.Namespace) -> "type[Subject]":
    """Return the class for the codec of the checkpoint."""
    from fna_lightning.analysis.image_models import ImageSubject
    from fna_lightning.analysis.models import HF, Subject
    from fna_lightning.analysis.translation_models import TranslationSubject
    from fna_lightning.checkpoints.load import read_checkpoint
    from fna_lightning.tasks.data.codec import read_codec

    kind = "text"
    if not args.checkpoint.startswith(HF):
        kind = read_codec(read_checkpoint(args.checkpoint).get("codec"), args.checkpoint).kind
    if kind == "image":
        if args.text:
            raise UsageError(f"--text {args.text[0]!r}: {args.checkpoint} reads images; give pictures by --image")
        return ImageSubject
    if args.image:
        raise UsageError(f"--image {args.image[0]!r}: {args.checkpoint} reads texts; give them by --text")
    return TranslationSubject if kind == "translation" else Subject


def examples_of(
    subject: "Subject", split: str | None, args: argparse.Namespace
) -> "tuple[list[Example], list[Example]]":
    """Return the examples a person gave, and those of the split."""
    from fna_lightning.analysis.image_models import ImageSubject, given_images, split_images
    from fna_lightning.analysis.models import given_texts, split_texts

    if isinstance(subject, ImageSubject):
        return given_images(subject, args.image), split_images(subject, split, args.count) if split else []
    given = given_texts(subject, args.text, args.max_length)
    return given, split_texts(subject, split, args.count, args.max_length) if split else []


def open_all(paths: list[str], opener: "type[SubjectT]", trust: bool = False) -> "list[SubjectT]":
    """Open the checkpoints; they must read the same tokens, and get different labels."""
    subjects = [opener.open(path, trust=trust) for path in paths]
    for other in subjects[1:]:
        if other.reads != subjects[0].reads:
            raise UsageError(
                f"{other.path} reads other tokens than {subjects[0].path}: there is nothing to compare token by token; "
                "analyse them one by one"
            )
    labels = [subject.label for subject in subjects]
    if len(set(labels)) == len(labels):
        return subjects
    return [
        opener(f"{subject.label} ({number})", subject.path, subject.task, subject.codec, subject.trust)
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
    from fna_lightning.analysis.study import (
        PROBABILITIES,
        align_maps,
        growth_lengths,
        study_ablation,
        study_growth,
        study_split,
        study_text,
    )
    from fna_lightning.graph.ablation import KINDS

    everything = many or shown
    lengths = growth_lengths(everything, args.max_length) if subjects[0].cuts else []
    examples, overall, ablations, growths = [], [], [], []
    with Progress(console=wide_console(), transient=True) as progress:
        deep = progress.add_task("examples in depth", total=len(shown) * len(subjects))
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
            pixels = {} if subjects[0].cuts else {"pixels": example.ids}
            examples.append(
                {"title": example.title, "words": example.words, "label": label, "models": models, **pixels}
            )
        for subject in subjects:
            if many:
                overall.append(study_split(subject, many, lambda: progress.advance(bars["split"])))
            ablations.append(study_ablation(subject, everything, args.seed, lambda: progress.advance(bars["ablation"])))
            growths.append(study_growth(subject, everything, lengths, lambda: progress.advance(bars["path length"])))
    return {
        **describe(subjects, args),
        "examples": examples,
        "split": {"name": split, "count": len(many), "models": overall} if many else None,
        "ablation": ablations,
        "growth": growths,
    }


def describe(subjects: "Sequence[Subject]", args: argparse.Namespace) -> dict[str, Any]:
    """Return what was studied, and how."""
    from fna_lightning.version import VERSION

    return {
        "title": "Attention as a graph: " + " against ".join(subject.label for subject in subjects),
        "version": VERSION,
        "max_length": args.max_length,
        "seed": args.seed,
        "models": [
            {"label": subject.label, "attention": subject.attention, "checkpoint": subject.path.name}
            for subject in subjects
        ],
    }


def study_translators(
    subjects: "list[TranslationSubject]",
    shown: "list[Example]",
    many: "list[Example]",
    split: str | None,
    args: argparse.Namespace,
) -> dict[str, Any]:
    """Return the same of translators: each text is two examples, the source and what the first model makes of it."""
    from fna_lightning.analysis.study import align_maps, growth_lengths, study_growth, study_split
    from fna_lightning.analysis.translation_study import ABLATED, study_pair_ablation, study_source, study_target

    everything = many or shown
    lengths = growth_lengths(everything, args.max_length)
    total = 2 * len(shown) + len(many) + len(lengths) + 1
    examples: list[dict[str, Any]] = []
    overall, ablations, growths = [], [], []
    with Progress(console=wide_console(), transient=True) as progress:
        bar = progress.add_task("studying", total=total * len(subjects))
        for example in shown:
            said = subjects[0].translate([example.ids])[0]
            words = subjects[0].codec.target_words([BEGIN, *said.tokens])
            for side, labels, look in (("source", example.words, study_source), ("translation", words, study_target)):
                models = []
                for subject in subjects:
                    models.append(look(subject, example, said))
                    progress.advance(bar)
                align_maps(models)
                title = f"{example.title}, {side}"
                examples.append({"title": title, "words": labels, "label": None, "models": models})
        for subject in subjects:
            if many:
                overall.append(study_split(subject, many, lambda: progress.advance(bar)))
            ablations.append(study_pair_ablation(subject, everything[:ABLATED], args.seed))
            progress.advance(bar)
            growths.append(study_growth(subject, everything, lengths, lambda: progress.advance(bar)))
    return {
        **describe(subjects, args),
        "examples": examples,
        "split": {"name": split, "count": len(many), "models": overall} if many else None,
        "ablation": ablations,
        "growth": growths,
    }


def show(report: dict[str, Any]) -> None:
    """Print the mean of every measure over all heads: of the split, or of the first text."""
    from fna_lightning.graph import MEASURES

    split = report["split"]
    kind = "images" if "pixels" in report["examples"][0] else "texts"
    title = f"mean over {split['count']} {kind} of {split['name']}" if split else report["examples"][0]["title"]
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
