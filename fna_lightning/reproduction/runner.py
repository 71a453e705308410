"""Running one piece, once: its finding is kept beside a key of all that it depends on."""

import hashlib
import inspect
import json
import shutil
import time
import traceback
from pathlib import Path
from typing import Any

from fna_lightning.reproduction.artifact import Finding, Piece
from fna_lightning.reproduction.artifacts import all_pieces
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.published import paper
from fna_lightning.reproduction.scales import Scale
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.files import write_text
from fna_lightning.version import VERSION

FINDING = "finding.json"


def piece_key(piece: Piece, scale: Scale, runs: Path) -> str:
    """Return a hash that changes when the piece, the scale, the paper's values or the results of its runs do."""
    parts = [VERSION, piece.name, repr(scale), inspect.getsource(inspect.getmodule(piece.run) or Piece), repr(paper())]
    reason = piece.refusal(scale)
    parts.append(reason)
    if not reason:
        for cell in piece.cells(scale):
            done = cell.finished(runs)
            parts += [
                cell.fingerprint(),
                json.dumps(read_results(cell.folder(runs)), sort_keys=True) if done else "missing",
            ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def read_finding(folder: Path) -> dict[str, Any] | None:
    """Return what a piece left in its folder; None if nothing, or nothing that can be read."""
    try:
        kept = json.loads((folder / FINDING).read_text())
        Finding.of(kept["finding"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return dict(kept)


def is_done(piece: Piece, scale: Scale, out: Path, runs: Path) -> bool:
    """Whether the piece has been run with everything as it is now, and did not break."""
    kept = read_finding(piece_folder(out, piece.name))
    return kept is not None and not kept["error"] and kept["key"] == piece_key(piece, scale, runs)


def piece_folder(out: Path, name: str) -> Path:
    """Return where a piece keeps its finding and its pictures."""
    return out / "pieces" / name


def run_piece(name: str, scale: Scale, out: Path, runs: Path) -> str:
    """Run a piece and keep what it found; return what broke it, "" if nothing did."""
    piece = all_pieces()[name]
    folder = piece_folder(out, name)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    started = time.perf_counter()
    error, details, finding = "", "", Finding()
    key = piece_key(piece, scale, runs)
    try:
        reason = piece.refusal(scale)
        finding = Finding(not_run=reason) if reason else piece.run(Bench(scale, runs, folder))
    except Exception as problem:
        error, details = f"{type(problem).__name__}: {problem}", traceback.format_exc()
    kept = {
        "key": key,
        "seconds": round(time.perf_counter() - started, 1),
        "error": error,
        "finding": finding.state(),
    }
    if details:
        write_text(folder / "traceback.txt", details)
    write_text(folder / FINDING, json.dumps(kept, indent=2) + "\n")
    return error
