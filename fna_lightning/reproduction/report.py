"""The report of a reproduction: as plain values, and written as report.json, report.html and report.md."""

import json
import math
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fna_lightning.experiments.markdown import machine
from fna_lightning.reproduction.artifact import Artifact, Result
from fna_lightning.reproduction.markdown import markdown_page
from fna_lightning.reproduction.page import html_page
from fna_lightning.reproduction.paper import deviations
from fna_lightning.reproduction.runner import artifact_folder, read_result
from fna_lightning.reproduction.scales import Scale
from fna_lightning.reproduction.verdict import NOT_RUN, RULE, VERDICTS, difference, verdict
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.files import write_text
from fna_lightning.version import VERSION


def write_report(artifacts: dict[str, Artifact], scale: Scale, out: Path, runs: Path) -> dict[str, Any]:
    """Write report.json, report.html and report.md with all results available so far, and return the report."""
    report = build_report(artifacts, scale, out, runs)
    out.mkdir(parents=True, exist_ok=True)
    write_text(out / "report.json", report_json(report))
    write_text(out / "report.html", html_page(report, out))
    write_text(out / "report.md", markdown_page(report))
    return report


def report_json(report: dict[str, Any]) -> str:
    """Return the report as JSON text."""
    return json.dumps(report, indent=2, ensure_ascii=False, allow_nan=False) + "\n"


def build_report(artifacts: dict[str, Artifact], scale: Scale, out: Path, runs: Path) -> dict[str, Any]:
    """Return the report as plain values."""
    cells = {
        cell for artifact in artifacts.values() if not artifact.skip_reason(scale) for cell in artifact.cells(scale)
    }
    results = [read_results(cell.folder(runs)) for cell in cells if cell.finished(runs)]
    return {
        "title": f"Fractional neural attention: reproduction, scale {scale.name}",
        "scale": scale.name,
        "summary": scale.summary,
        "rule": RULE,
        "version": VERSION,
        "machine": machine(),
        "runs": {
            "needed": len(cells),
            "finished": len(results),
            "training_hours": round(sum(stages["fit"]["seconds"] for stages in results) / 3600, 2),
        },
        "artifacts": [_artifact(artifact, out) for artifact in artifacts.values()],
        "deviations": deviations(),
    }


def _artifact(artifact: Artifact, out: Path) -> dict[str, Any]:
    stored = read_result(artifact_folder(out, artifact.name))
    result = Result.from_dict(stored["result"]) if stored else Result(not_run="it has not been started yet")
    error = stored["error"] if stored else ""
    rows = [{**_finite(asdict(row)), "difference": difference(row), "verdict": verdict(row)} for row in result.rows]
    claims = [{**_finite(asdict(claim)), "verdict": verdict(claim)} for claim in result.claims]
    counts = Counter(entry["verdict"] for entry in (*rows, *claims))
    if error or result.not_run:
        counts[NOT_RUN] += 1
    return {
        "name": artifact.name,
        "title": artifact.title,
        "summary": artifact.summary,
        "seconds": stored["seconds"] if stored else 0.0,
        "error": error,
        "not_run": result.not_run,
        "verdicts": {name: counts[name] for name in VERDICTS if counts[name]},
        "rows": rows,
        "claims": claims,
        "tables": [asdict(table) for table in result.tables],
        "figures": result.figures,
        "notes": result.notes,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN and infinity, which JSON cannot represent, by None."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in values.items()
    }
