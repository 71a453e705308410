"""Everything the page says, as plain values."""

import math
import os
import platform
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from fna_lightning.reproduction.artifact import Finding, Piece
from fna_lightning.reproduction.published import deviations
from fna_lightning.reproduction.runner import piece_folder, read_finding
from fna_lightning.reproduction.scales import Scale
from fna_lightning.reproduction.verdict import NOT_RUN, RULE, VERDICTS, difference, verdict
from fna_lightning.training.run_folder import read_results
from fna_lightning.version import VERSION


def summary(pieces: dict[str, Piece], scale: Scale, out: Path, runs: Path) -> dict[str, Any]:
    """Return the report of the given pieces."""
    cells = {cell for piece in pieces.values() if not piece.refusal(scale) for cell in piece.cells(scale)}
    done = [read_results(cell.folder(runs)) for cell in cells if cell.finished(runs)]
    return {
        "title": f"Fractional neural attention: reproduction, scale {scale.name}",
        "scale": scale.name,
        "says": scale.says,
        "rule": RULE,
        "version": VERSION,
        "machine": f"{os.cpu_count()} cores, {platform.machine()}, {platform.system()}",
        "runs": {
            "needed": len(cells),
            "finished": len(done),
            "training_hours": round(sum(one["fit"]["seconds"] for one in done) / 3600, 2),
        },
        "pieces": [_piece(piece, out) for piece in pieces.values()],
        "deviations": deviations(),
    }


def _piece(piece: Piece, out: Path) -> dict[str, Any]:
    kept = read_finding(piece_folder(out, piece.name))
    finding = Finding.of(kept["finding"]) if kept else Finding(not_run="it has not been its turn yet")
    error = kept["error"] if kept else ""
    rows = [{**_finite(asdict(row)), "difference": difference(row), "verdict": verdict(row)} for row in finding.rows]
    claims = [{**_finite(asdict(claim)), "verdict": verdict(claim)} for claim in finding.claims]
    counts = Counter(one["verdict"] for one in (*rows, *claims))
    if error or finding.not_run:
        counts[NOT_RUN] += 1
    return {
        "name": piece.name,
        "title": piece.title,
        "says": piece.says,
        "seconds": kept["seconds"] if kept else 0.0,
        "error": error,
        "not_run": finding.not_run,
        "verdicts": {name: counts[name] for name in VERDICTS if counts[name]},
        "rows": rows,
        "claims": claims,
        "tables": [asdict(table) for table in finding.tables],
        "figures": finding.figures,
        "notes": finding.notes,
    }


def _finite(values: dict[str, Any]) -> dict[str, Any]:
    """Replace NaN, which JSON does not know, by null."""
    return {key: None if isinstance(one, float) and not math.isfinite(one) else one for key, one in values.items()}
