"""Study the attention of a trained model as a graph: figures, JSON and one HTML page that needs no network.

Spectrum and gap, entropy, hop matrix, a path explorer, diffusion maps, ablation curves, and hops, entropy and neighbors
against sequence length. --against compares with other models that have the same tokens, side by side. --text and
--image name the examples; without them, examples come from --split of the run's data. With --count, the page has both:
the texts first, then examples of the split. The tokens of an image are its patches, and attention is drawn over the
image. A translation model has two graphs per text, the source in the encoder and the translation in the decoder, and
the cross-attention between them. For a field model: the effective number of neighbors of each head against the number
of points, and the weights of queries over the map. In Python: fna_lightning.analysis.study.

Examples:
  fna-lightning analyze runs/reviews_fna/version_0
  fna-lightning analyze best.ckpt --text "the plot was not what i call gripping"
  fna-lightning analyze best.ckpt --text "the plot was gripping" --split test --count 50
  fna-lightning analyze runs/digits_fna/version_0 --split test --count 20
  fna-lightning analyze cifar.ckpt --image cat.png
  fna-lightning analyze runs/reviews_fna/version_0 --against runs/reviews_dp/version_0 --split test --out comparison
  fna-lightning analyze runs/terrain_fna/version_0 --against runs/terrain_la/version_0
  fna-lightning analyze hf:my-bert --text "the plot was not what i call gripping"
"""

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console

from fna_lightning.errors import UsageError
from fna_lightning.utils.console import progress_bar, wide_console

if TYPE_CHECKING:
    from fna_lightning.analysis import Report
    from fna_lightning.analysis.measurements import Tick
    from fna_lightning.analysis.models import StudiedModel
    from fna_lightning.analysis.study_models import Track

log = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument(
        "checkpoint",
        metavar="CKPT",
        help="a run folder or checkpoint of any task, or hf:FOLDER of a transformers model",
    )
    parser.add_argument(
        "--text", action="append", default=[], metavar="TEXT", help="a text to study, or to translate; repeatable"
    )
    parser.add_argument(
        "--image", action="append", default=[], metavar="FILE", help="an image file to study; repeatable"
    )
    parser.add_argument(
        "--split",
        choices=("train", "val", "test"),
        help="also study examples of this split (default: val with --count, or without --text and --image)",
    )
    parser.add_argument("--count", type=int, metavar="N", help="number of examples of the split (default: 100)")
    parser.add_argument(
        "--depth",
        type=int,
        default=3,
        metavar="N",
        help="number of examples of the split whose matrices are on the page (default: %(default)s); those of --text "
        "and --image always are",
    )
    parser.add_argument(
        "--against",
        action="append",
        default=[],
        metavar="CKPT",
        help="a run folder, checkpoint or hf:FOLDER to compare with; repeatable",
    )
    parser.add_argument(
        "--max-length",
        type=int,
        default=128,
        metavar="N",
        help="largest number of tokens of a text (default: %(default)s)",
    )
    parser.add_argument(
        "--trust", action="store_true", help="build any function or class that the checkpoint or its config.yaml names"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the ablation (default: %(default)s)")
    parser.add_argument("--out", type=Path, metavar="DIR", help="output folder (default: analysis in the run folder)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a copy of results.json to FILE")


def run(args: argparse.Namespace) -> int:
    """Study the models, write the files and print the tables."""
    for name, value, least in (
        ("--count", args.count, 1),
        ("--depth", args.depth, 0),
        ("--max-length", args.max_length, 2),
    ):
        if value is not None and value < least:
            raise UsageError(f"{name} must be at least {least}, got {value}")
    if args.trust:
        log.warning("--trust: %s and its run folder may run any code they name", args.checkpoint)
    from fna_lightning.analysis import load, study
    from fna_lightning.analysis.tables import report_tables

    model = load(args.checkpoint, trust=args.trust)
    # a translation model calls its texts sources
    texts = "sources" if model.argument == "sources" else "texts"
    with progress() as track:
        report = study(
            model,
            against=args.against,
            **{texts: args.text},
            images=args.image,
            split=args.split,
            count=args.count,
            depth=args.depth,
            max_length=args.max_length,
            seed=args.seed,
            trust=args.trust,
            track=track,
        )
        folder = args.out or default_folder(model)
        write(report, folder, args.json, track)
    console = wide_console()
    for part in report_tables(report):
        console.print(part, highlight=False)
    print(f"open {folder / 'index.html'} in a browser; the numbers are in results.json, the figures in PNG files")
    return 0


def default_folder(model: "StudiedModel") -> Path:
    """Return the folder ``analysis`` of the run, or next to the checkpoint."""
    folder = model.run_folder or (model.path if model.path.is_dir() else model.path.parent)
    return folder / "analysis"


def write(report: "Report", folder: Path, copy: Path | None, track: "Track") -> None:
    """Write results.json, the figures and the page to ``folder``, and results.json to ``copy`` too."""
    from fna_lightning.analysis.pictures import write_pictures

    tick = track("files", 3)
    folder.mkdir(parents=True, exist_ok=True)
    for path in [folder / "results.json", *([copy] if copy else [])]:
        report.to_json(path)
    tick()
    write_pictures(report, folder)
    tick()
    report.to_html(folder / "index.html")
    tick()


@contextmanager
def progress() -> "Iterator[Track]":
    """Context manager that shows the parts of the work on stderr: as progress bars, or as lines without a terminal."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield line_of_part
        return
    with progress_bar(console) as bars:

        def track(description: str, total: int) -> "Tick":
            bar = bars.add_task(description, total=total, visible=total > 0)
            return lambda: bars.advance(bar)

        yield track


def line_of_part(description: str, total: int) -> "Tick":
    """Log the start of a part of the work; its steps are not shown."""
    if total:
        log.info("%s: %d steps", description, total)
    return lambda: None
