"""Markdown page of a sweep, with published values beside ours."""

import math
import os
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.experiments.seeds import Summary
from fna_lightning.utils.escaping import markdown_text
from fna_lightning.utils.limits import read_yaml


def read_published(path: Path) -> dict[str, float]:
    """Return the content of a YAML file that maps words of a label to a published value.

    Raises:
        UsageError: if the file cannot be read or has another structure.
    """
    try:
        values = read_yaml(path)
    except UsageError as error:
        raise UsageError(f"--paper {error}") from error
    if not isinstance(values, dict) or not all(isinstance(value, int | float) for value in values.values()):
        raise UsageError(
            f"--paper {path} must map words of a label to numbers, one per line, as in 'sst_fna tied=true: 0.83'"
        )
    return {str(key): float(value) for key, value in values.items()}


def published_value(published: Mapping[str, float], label: str) -> float | None:
    """Return the value whose words all occur in ``label``; if several match, the one with the most words."""
    words = set(label.split())
    matching = [key for key in published if set(key.split()) <= words]
    return published[max(matching, key=lambda key: len(key.split()))] if matching else None


def sweep_markdown(report: Mapping[str, Any], summaries: Mapping[str, Summary], published: Mapping[str, float]) -> str:
    """Return the page of a sweep."""
    paper = ["paper"] if published else []
    lines = [
        f"# {report['metric']}",
        "",
        f"    {report['command']}",
        "",
        _row(["", "seeds", "mean", "± 95 %", "median", "best", "worst", *paper, "minutes per run", "CPU minutes"]),
        _row(["---"] * (9 + len(paper))),
    ]
    for label, summary in summaries.items():
        values = [summary.mean, summary.half_width, summary.median, summary.best, summary.worst]
        paper_values = [published_value(published, label)] if published else []
        seconds = (report[name][label] for name in ("fit_seconds", "fit_cpu_seconds"))
        minutes = ["-" if total is None else f"{total / 60 / summary.count:.1f}" for total in seconds]
        lines.append(
            _row([markdown_text(label), str(summary.count), *map(_number, [*values, *paper_values]), *minutes])
        )
    if report["paired"]:
        lines += ["", "Difference to the baseline, paired by seed:", ""]
        lines += [_row(["", "difference", "± 95 %", "p"]), _row(["---"] * 4)]
        for label, pair in report["paired"].items():
            lines.append(
                _row([markdown_text(label), *map(_number, (pair["mean"], pair["half_width"], pair["p_value"]))])
            )
    versions = ", ".join(f"{name} {version}" for name, version in report["versions"].items())
    seeds = sorted({run["seed"] for run in report["runs"]})
    if missing := report["unfinished"]:
        lines += ["", f"Not run: {missing} of the {len(report['runs']) + missing} runs of this grid."]
    lines += ["", f"Seeds {', '.join(map(str, seeds))}. {machine()}. {versions}.", ""]
    return "\n".join(lines)


def publish(root: Path, target: Path) -> None:
    """Copy the page, JSON and figures of a sweep to ``target``.md, .json, .png and _training.png."""
    target.parent.mkdir(parents=True, exist_ok=True)
    page = (root / "results.md").read_text()
    for name, suffix in (("results.png", ".png"), ("training.png", "_training.png")):
        if (root / name).is_file():
            shutil.copyfile(root / name, f"{target}{suffix}")
            page += f"\n![{name.removesuffix('.png')}]({target.name}{suffix})\n"
    Path(f"{target}.md").write_text(page)
    shutil.copyfile(root / "results.json", f"{target}.json")


def machine() -> str:
    """Return a short description of the machine, on which the training times depend."""
    return f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}"


def _row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _number(value: float | None) -> str:
    return "-" if value is None or math.isnan(value) else f"{value:.4f}"
