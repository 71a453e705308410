"""Records of finished runs: small JSON files that can be committed, so that a study continues on another machine.

A record holds the results of one cell and its validation metrics by epoch, but no checkpoint. Restoring a record writes
them to the run folder of the cell, which then counts as finished. A record is used only while the configuration file
and the settings of its cell are unchanged.
"""

import csv
import hashlib
import io
import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.experiments.epochs import read_epochs
from fna_lightning.experiments.grid import Cell
from fna_lightning.training.run_folder import read_results, write_results
from fna_lightning.utils.files import write_text
from fna_lightning.utils.limits import read_json

# stages of results.json that a record needs
STAGES = ("run", "fit", "test")
# columns of metrics.csv that a record keeps for each epoch
CURVES = (
    "train/loss_epoch",
    "val/loss",
    "val/accuracy",
    "val/bleu",
    "val/bleu_paper",
    "val/token_accuracy",
    "attention/spectral_gap",
    "attention/mean_hops",
    "attention_detail/entropy",
)


def record_path(cell: Cell, records: Path) -> Path:
    """Return the file of a cell in the folder of records."""
    folder = cell.folder(records)
    return folder.parent / f"{folder.name}.json"


def save_record(cell: Cell, root: Path, records: Path) -> Path:
    """Write the record of a finished cell and return its path."""
    folder = cell.folder(root)
    arguments = ["--config", Path(cell.config).name, *cell.arguments()[2:]]
    record = {
        "command": shlex.join(["fna-lightning", "fit", *arguments]),
        "fingerprint": _digest(cell),
        "results": _without_details(read_results(folder)),
        "epochs": read_epochs(folder / "metrics.csv", CURVES),
    }
    path = record_path(cell, records)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, json.dumps(record, indent=1, sort_keys=True) + "\n")
    return path


def restore_record(cell: Cell, root: Path, records: Path) -> bool:
    """Write the results of a record to the run folder of its cell; return whether there was a matching record."""
    path = record_path(cell, records)
    if not path.is_file():
        return False
    record = _read_record(path)
    if record["fingerprint"] != _digest(cell):
        return False
    folder = cell.start(root)
    write_text(folder / "metrics.csv", _csv(record["epochs"]))
    write_results(folder, record["results"])
    return True


def sync_records(cells: Iterable[Cell], root: Path, records: Path) -> int:
    """Restore the cells that have a record but no finished run, save the others, and return how many were restored."""
    restored = 0
    for cell in cells:
        if not cell.finished(root):
            restored += restore_record(cell, root, records)
        elif not record_path(cell, records).is_file():
            save_record(cell, root, records)
    return restored


def _digest(cell: Cell) -> str:
    return hashlib.sha256(cell.fingerprint().encode()).hexdigest()[:16]


def _without_details(results: dict[str, Any]) -> dict[str, Any]:
    """Return results without the metrics of single heads and the copies that Lightning makes of metrics."""
    kept = {name: dict(part) for name, part in results.items()}
    for part in kept.values():
        if "metrics" in part:
            part["metrics"] = {
                name: value
                for name, value in part["metrics"].items()
                if not name.startswith("heads/") and not name.endswith(("_step", "_epoch"))
            }
    return kept


def _read_record(path: Path) -> dict[str, Any]:
    """Return a record; raise UsageError if the file does not have the structure of one."""
    way_out = "restore it, or delete it to train the run again"
    record = read_json(path, way_out)
    results = record.get("results") if isinstance(record, dict) else None
    if (
        not isinstance(results, dict)
        or not all(isinstance(results.get(stage), dict) for stage in STAGES)
        or not isinstance(results["test"].get("metrics"), dict)
        or not isinstance(record.get("fingerprint"), str)
        or not all(isinstance(row, dict) for row in record.get("epochs", {}).values())
    ):
        raise UsageError(f"{path} does not have the structure of a record of a run; {way_out}")
    return dict(record)


def _csv(epochs: dict[str, dict[str, float]]) -> str:
    """Return values by epoch in the format of metrics.csv."""
    text = io.StringIO()
    writer = csv.DictWriter(text, ["epoch", *sorted({name for row in epochs.values() for name in row})])
    writer.writeheader()
    writer.writerows({"epoch": epoch, **row} for epoch, row in epochs.items())
    return text.getvalue()
