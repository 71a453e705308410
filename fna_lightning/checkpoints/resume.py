"""Where a run resumes, and which settings have changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from fna_lightning.checkpoints.exact.state import STATE
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.errors import UsageError
from fna_lightning.utils.limits import check_yaml

# arguments that are not settings of the run itself
IGNORED = ("ckpt_path", "weights_only")


@dataclass(frozen=True)
class ResumePoint:
    """The point from which a run resumes.

    Args:
        checkpoint: last checkpoint; None if the run stopped before the first one.
        step: number of training steps done.
        rows: number of rows of metrics.csv that belong to those steps.
    """

    checkpoint: Path | None
    step: int = 0
    rows: int = 0

    @classmethod
    def of(cls, folder: Path) -> "ResumePoint":
        """Return the point from which the run in ``folder`` resumes."""
        require_run_folder(folder)
        last = folder / "checkpoints" / "last.ckpt"
        if not last.is_file():
            return cls(None)
        checkpoint = read_checkpoint(last)
        exact, step = checkpoint.get(STATE), checkpoint.get("global_step")
        if not isinstance(exact, dict) or not isinstance(exact.get("rows"), int) or not isinstance(step, int):
            raise UsageError(f"{last} has no exact training state: it was not written by `fna-lightning fit`")
        return cls(last, step, exact["rows"])


def require_run_folder(folder: Path) -> None:
    """Raise an error if ``folder`` is not the folder of a run."""
    if folder.is_file():
        owner = folder.absolute().parent.parent
        run = owner if (owner / "config.yaml").is_file() else "runs/reviews_fna/version_0"
        raise UsageError(f"{folder} is a file; give the folder of a run, e.g. {run}")
    if not folder.is_dir():
        raise UsageError(
            f"there is no folder {str(folder)!r}: it was deleted, moved or never made; give the folder of a run, e.g. "
            "runs/reviews_fna/version_0"
        )
    if not (folder / "config.yaml").is_file():
        raise UsageError(
            f"{folder} is no run folder: it has no config.yaml; give the folder of a run, e.g. "
            "runs/reviews_fna/version_0"
        )


def changes(before: str, now: str) -> Iterator[str]:
    """Yield a line for every setting that differs between two configurations in YAML."""
    check_yaml(before, "the configuration of the run")
    old, new = (dict(settings(yaml.safe_load(text) or {})) for text in (before, now))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name) and name not in IGNORED:
            yield f"{name}: {_format(old, name)} -> {_format(new, name)}"


def settings(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the dotted name and the value of every setting of a configuration."""
    if isinstance(tree, dict) and tree:
        for name, value in tree.items():
            yield from settings(value, f"{prefix}.{name}" if prefix else str(name))
    else:
        yield prefix, tree


def _format(settings: dict[str, Any], name: str) -> str:
    return repr(settings[name]) if name in settings else "(not set)"
