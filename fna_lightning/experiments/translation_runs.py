"""Tested translation runs side by side: scores, signatures and training cost as rows and as Markdown."""

from pathlib import Path
from typing import Any

from fna_lightning.config.resolve import shipped_configs
from fna_lightning.errors import UsageError
from fna_lightning.experiments.grid import FINGERPRINT_FILE
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.escaping import markdown_code, markdown_text
from fna_lightning.utils.limits import read_json

# heading of each column, with the split and the score it shows
COLUMNS = {
    "BLEU": ("test", "bleu"),
    "BLEU, lower-cased": ("test", "bleu_lowercase"),
    "BLEU, tokenized lower-case": ("test", "bleu_tokenised_lowercase"),
    "chrF": ("test", "chrf"),
    "TER": ("test", "ter"),
    "bleu_paper, test": ("test", "bleu_paper"),
    "bleu_paper, val": ("val", "bleu_paper"),
}


def read_run(folder: Path) -> dict[str, Any]:
    """Return the scores, settings and training cost of a run folder."""
    if not (folder / "test.scores.json").is_file():
        raise UsageError(
            f"{folder} has no test.scores.json: it is not a translation run, or it was not tested; run "
            f"`fna-lightning test --config {folder}/config.yaml --ckpt_path {folder}/checkpoints/best.ckpt`"
        )
    results = read_results(folder)
    splits = {}
    for split in ("test", "val"):
        path = folder / f"{split}.scores.json"
        if path.is_file():
            splits[split] = read_scores(path)
    fit, run = results.get("fit", {}), results.get("run", {})
    name, settings = run_origin(folder.absolute())
    return {
        "name": name,
        "command": " ".join(["fna-lightning fit --config", f"{name}.yaml", *settings]),
        "attention": run.get("attention"),
        "parameters": run.get("parameters"),
        "seed": run.get("seed"),
        "threads": run.get("threads"),
        "versions": run.get("versions"),
        "epochs": fit.get("epochs"),
        "steps": fit.get("steps"),
        "minutes": None if "seconds" not in fit else round(fit["seconds"] / 60, 1),
        "cpu_minutes": None if "cpu_seconds" not in fit else round(fit["cpu_seconds"] / 60, 1),
        "test_seconds": results.get("test", {}).get("seconds"),
        "scores": splits,
    }


def read_scores(path: Path) -> dict[str, Any]:
    """Return the content of a scores file; raise a ``UsageError`` that names the file if it is damaged."""
    split = path.name.partition(".")[0]
    way_out = f"write it again with `fna-lightning {'test' if split == 'test' else 'validate'}`"
    scores = read_json(path, way_out)
    parts = ("metrics", "signatures", "decoding")
    if not isinstance(scores, dict) or not all(isinstance(scores.get(part), dict) for part in parts):
        raise UsageError(f"{path} does not contain the scores of a translation run; {way_out}")
    if not all(isinstance(score, int | float) for score in scores["metrics"].values()):
        raise UsageError(f"{path} contains a score that is not a number; {way_out}")
    return scores


def run_origin(folder: Path) -> tuple[str, list[str]]:
    """Return the name of the configuration of a run, and the settings with which a sweep overrode it."""
    name, fingerprint = folder.parent.name, folder / FINGERPRINT_FILE
    if not fingerprint.is_file():
        return name, []
    # A sweep names its folders by configuration and settings.
    configs = [config.removesuffix(".yaml") for config in shipped_configs()]
    name = max((config for config in configs if name.startswith(config)), key=len, default=name)
    return name, [line for line in fingerprint.read_text().splitlines() if line.startswith("--")]


def comparison_markdown(title: str, rows: list[dict[str, Any]]) -> str:
    """Return a Markdown table of the runs, followed by signatures and commands."""
    facts = {"epochs": "epochs", "minutes": "minutes", "CPU minutes": "cpu_minutes", "seed": "seed"}
    head = ["", *COLUMNS, *facts]
    lines = [f"# {title}", "", _line(head), _line(["---"] * len(head))]
    for row in rows:
        cells = [_score(row, split, name) for split, name in COLUMNS.values()]
        lines.append(_line([markdown_text(row["name"]), *cells, *(_text(row[fact]) for fact in facts.values())]))
    scores = rows[0]["scores"]["test"]
    decoding = ", ".join(markdown_text(f"{name} {value}") for name, value in scores["decoding"].items())
    lines += ["", f"{_text(scores.get('sentences'))} sentences of the test split; {decoding}. Minutes of training."]
    lines += ["", "Signatures:", ""]
    lines += [
        f"- {markdown_text(name)}: {markdown_code(signature)}" for name, signature in scores["signatures"].items()
    ]
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
