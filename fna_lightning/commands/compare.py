"""Set tested translation runs side by side: one table for people (Markdown), one for programs (JSON).

Reads what `fit`, `test` and `validate` left in the run folders: scores with their signatures, seed, versions, minutes.
``bleu_paper`` is no BLEU of a translation (nothing is decoded for it) and stands in columns of its own.

Examples:
  fna-lightning compare runs/multi30k_strong_fna/version_0 runs/multi30k_strong_dp/version_0
  fna-lightning compare RUN RUN --title "Multi30K En-De" --markdown multi30k.md --json multi30k.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.utils.escaping import markdown_code, markdown_text

# column: (file of a run folder, score)
COLUMNS = {
    "BLEU": ("test", "bleu"),
    "BLEU, lower-cased": ("test", "bleu_lowercase"),
    "BLEU, tokenised lower-case": ("test", "bleu_tokenised_lowercase"),
    "chrF": ("test", "chrf"),
    "TER": ("test", "ter"),
    "bleu_paper, test": ("test", "bleu_paper"),
    "bleu_paper, val": ("val", "bleu_paper"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("runs", nargs="+", metavar="RUN", type=Path, help="the folder of a tested translation run")
    parser.add_argument("--title", default="Translation", help="heading of the table (default: %(default)s)")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table here too")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything as JSON")


def run(args: argparse.Namespace) -> int:
    """Print and write the comparison."""
    rows = [read_run(folder) for folder in args.runs]
    text = markdown(args.title, rows)
    print(text)
    if args.markdown:
        args.markdown.write_text(text + "\n", encoding="utf-8")
    if args.json:
        args.json.write_text(json.dumps({"title": args.title, "runs": rows}, indent=2) + "\n", encoding="utf-8")
    return 0


def read_run(folder: Path) -> dict[str, Any]:
    """Return what a run folder says of itself."""
    from fna_lightning.training.run_folder import read_results

    if not (folder / "test.scores.json").is_file():
        raise UsageError(
            f"{folder} holds no test.scores.json: it is no translation run, or not tested; run `fna-lightning test "
            f"--config {folder}/config.yaml --ckpt_path {folder}/checkpoints/best.ckpt`"
        )
    results = read_results(folder)
    splits = {}
    for split in ("test", "val"):
        path = folder / f"{split}.scores.json"
        if path.is_file():
            splits[split] = read_scores(path)
    fit, facts = results.get("fit", {}), results.get("run", {})
    name, settings = origin(folder.absolute())
    return {
        "name": name,
        "command": " ".join(["fna-lightning fit --config", f"{name}.yaml", *settings]),
        "attention": facts.get("attention"),
        "parameters": facts.get("parameters"),
        "seed": facts.get("seed"),
        "threads": facts.get("threads"),
        "versions": facts.get("versions"),
        "epochs": fit.get("epochs"),
        "steps": fit.get("steps"),
        "minutes": None if "seconds" not in fit else round(fit["seconds"] / 60, 1),
        "cpu_minutes": None if "cpu_seconds" not in fit else round(fit["cpu_seconds"] / 60, 1),
        "test_seconds": results.get("test", {}).get("seconds"),
        "scores": splits,
    }


def read_scores(path: Path) -> dict[str, Any]:
    """Return what a file of scores holds; a damaged one is named."""
    from fna_lightning.utils.limits import read_json

    split = path.name.partition(".")[0]
    way_out = f"write it again with `fna-lightning {'test' if split == 'test' else 'validate'}`"
    scores = read_json(path, way_out)
    parts = ("metrics", "signatures", "decoding")
    if not isinstance(scores, dict) or not all(isinstance(scores.get(part), dict) for part in parts):
        raise UsageError(f"{path} does not hold the scores of a translation run; {way_out}")
    if not all(isinstance(score, int | float) for score in scores["metrics"].values()):
        raise UsageError(f"{path} holds a score that is no number; {way_out}")
    return scores


def origin(folder: Path) -> tuple[str, list[str]]:
    """Return the name of the configuration a run was made of, and the settings laid over it by a sweep."""
    from fna_lightning.config.resolve import shipped_configs
    from fna_lightning.experiments.grid import FINGERPRINT_FILE

    name, fingerprint = folder.parent.name, folder / FINGERPRINT_FILE
    if not fingerprint.is_file():
        return name, []
    # a sweep names its folders by configuration and settings
    known = [config.removesuffix(".yaml") for config in shipped_configs()]
    name = max((config for config in known if name.startswith(config)), key=len, default=name)
    return name, [line for line in fingerprint.read_text().splitlines() if line.startswith("--")]


def markdown(title: str, rows: list[dict[str, Any]]) -> str:
    """Return the comparison as a Markdown table with signatures and commands below it."""
    facts = {"epochs": "epochs", "minutes": "minutes", "CPU minutes": "cpu_minutes", "seed": "seed"}
    head = ["", *COLUMNS, *facts]
    lines = [f"# {title}", "", _line(head), _line(["---"] * len(head))]
    for row in rows:
        cells = [_score(row, split, name) for split, name in COLUMNS.values()]
        lines.append(_line([markdown_text(row["name"]), *cells, *(_text(row[fact]) for fact in facts.values())]))
    first = rows[0]["scores"]["test"]
    decoding = ", ".join(markdown_text(f"{name} {value}") for name, value in first["decoding"].items())
    lines += [
        "",
        f"{_text(first.get('sentences'))} sentences of the test split; {decoding}. Minutes are those of the training.",
    ]
    lines += ["", "Signatures:", ""]
    lines += [f"- {markdown_text(name)}: {markdown_code(signature)}" for name, signature in first["signatures"].items()]
    lines += ["", "Commands, each followed by `validate` and `test` on its best checkpoint:", ""]
    lines += [f"- {markdown_code(row['command'])}, {_text(row['threads'])} thread(s), {_versions(row)}" for row in rows]
    return "\n".join(lines)


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _score(row: dict[str, Any], split: str, name: str) -> str:
    value = row["scores"].get(split, {}).get("metrics", {}).get(name)
    return "-" if value is None else f"{value:.2f}"


def _text(value: object) -> str:
    return "-" if value is None else markdown_text(value)


def _versions(row: dict[str, Any]) -> str:
    return ", ".join(markdown_text(f"{name} {version}") for name, version in (row["versions"] or {}).items())
