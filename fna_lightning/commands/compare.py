"""Compare tested translation runs in one table, as Markdown and as JSON.

Reads the files that `fit`, `test` and `validate` wrote into the run folders: scores with their signatures, seed,
versions and training time. ``bleu_paper`` is computed from teacher-forced predictions, not from decoded translations,
and has columns of its own.

Examples:
  fna-lightning compare runs/multi30k_strong_fna/version_0 runs/multi30k_strong_dp/version_0
  fna-lightning compare RUN RUN --title "Multi30K En-De" --markdown multi30k.md --json multi30k.json
"""

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``compare``."""
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="folder of a tested translation run")
    parser.add_argument("--title", default="Translation", help="heading of the table (default: %(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to this file")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all values as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the comparison and write it to files."""
    from fna_lightning.experiments.translation_runs import comparison_markdown, read_run

    rows = [read_run(folder) for folder in args.runs]
    text = comparison_markdown(args.title, rows)
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n", encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps({"title": args.title, "runs": rows}, indent=2) + "\n", encoding="utf-8")
    return 0
