"""Comparison of an interrupted run with an uninterrupted one."""

import csv
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from fna_lightning.checkpoints.load import read_checkpoint

PARTS = ("state_dict", "optimizer_states", "lr_schedulers", "epoch", "global_step")


def differences(whole: Path, stopped: Path) -> list[str]:
    """Return the names of the parts of two finished runs that are not bit-identical."""
    different = [] if _read(whole, "metrics.csv") == _read(stopped, "metrics.csv") else ["metrics.csv"]
    for name in ("last.ckpt", "best.ckpt"):
        paths = [run / "checkpoints" / name for run in (whole, stopped)]
        if not all(path.is_file() for path in paths):
            different += [name] if any(path.is_file() for path in paths) else []
            continue
        states = [read_checkpoint(path) for path in paths]
        different += [f"{name}: {part}" for part in PARTS if not _equal(*(state.get(part) for state in states))]
    expected, actual = (dict(entries(results(run))) for run in (whole, stopped))
    names = sorted(expected.keys() | actual.keys())
    different += [f"results.json: {name}" for name in names if expected.get(name) != actual.get(name)]
    return different


def differences_by_design(whole: Path, stopped: Path, examples: tuple[Path, Path], *, steps: bool) -> list[str]:
    """Return the parts that differ although another number of ranks must not change them.

    Sums over other parts of a batch round differently and other processes draw the random numbers, so weights are not
    compared. The numbers of epochs and validations are, and each epoch must have trained on every example once.

    Args:
        whole: folder of the uninterrupted run.
        stopped: folder of the interrupted run.
        examples: folders with the recorded examples of both runs.
        steps: whether the effective batch size is the same, so that the number of steps must be, too.
    """
    parts = ("epoch", "global_step") if steps else ("epoch",)
    states = [read_checkpoint(run / "checkpoints/last.ckpt") for run in (whole, stopped)]
    different = [f"last.ckpt: {part}" for part in parts if states[0][part] != states[1][part]]
    validations = [
        [row["step"] for row in csv.DictReader(_read(run, "metrics.csv").splitlines()) if row.get("val/loss")]
        for run in (whole, stopped)
    ]
    same = validations[0] == validations[1] if steps else len(validations[0]) == len(validations[1])
    different += [] if same else ["metrics.csv: validations"]
    fits = [results(run).get("fit", {}) for run in (whole, stopped)]
    names = ("epochs", "steps") if steps else ("epochs",)
    different += [f"results.json: {name}" for name in names if fits[0].get(name) != fits[1].get(name)]
    trained = [trained_on(folder) for folder in examples]
    different += [
        f"examples of epoch {epoch}" for epoch in sorted(trained[0]) if trained[0][epoch] != trained[1].get(epoch)
    ]
    return different


def trained_on(folder: Path) -> dict[int, Counter[str]]:
    """Return how often each epoch trained on each example, without the steps that were lost and repeated."""
    kept: list[list[Any]] = []
    # one folder per process of the run (leg), with one file per rank
    for leg in sorted(folder.iterdir(), key=lambda path: int(path.name)):
        lines = [json.loads(line) for path in leg.iterdir() for line in path.read_text().splitlines()]
        if lines:
            begin = min(step for step, _, _ in lines)
            kept = [line for line in kept if line[0] < begin] + lines
    epochs: dict[int, Counter[str]] = {}
    for _, epoch, examples in kept:
        epochs.setdefault(epoch, Counter()).update(examples)
    return epochs


def results(run: Path) -> dict[str, Any]:
    """Return results.json of a run, empty if it is missing."""
    path = run / "results.json"
    return json.loads(path.read_text()) if path.is_file() else {}


def entries(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the name and value of every entry of nested dictionaries except times."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            if "second" not in key:
                yield from entries(value, f"{name}.{key}" if name else key)
    else:
        yield name, tree


def _read(run: Path, name: str) -> str:
    path = run / name
    return path.read_text() if path.is_file() else ""


def _equal(expected: Any, actual: Any) -> bool:
    leaves = [torch.utils._pytree.tree_flatten(tree) for tree in (expected, actual)]
    return leaves[0][1] == leaves[1][1] and all(
        torch.equal(a, b) if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor) else bool(a == b)
        for a, b in zip(leaves[0][0], leaves[1][0], strict=True)
    )
