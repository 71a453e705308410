"""Context in which an artifact runs: results of its training runs, its folder, and the rows built from them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import paired_difference, summarize
from fna_lightning.reproduction.artifact import Claim, Published, Row
from fna_lightning.reproduction.scales import Scale
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.files import write_figure

if TYPE_CHECKING:
    from fna_lightning.analysis.models import Example, StudiedModel

ACCURACY = "test/accuracy"


@dataclass(frozen=True)
class Context:
    """Context of one artifact.

    Attributes:
        scale: size of the reproduction.
        runs: folder of all training runs.
        folder: folder of the artifact, for its figures.
        workers: number of processes that an artifact may train in.
        train: whether an artifact may train; otherwise it takes the finished runs only.
    """

    scale: Scale
    runs: Path
    folder: Path
    workers: int = 1
    train: bool = True

    def results(self, cells: Sequence[Cell], metric: str = ACCURACY, factor: float = 100.0) -> dict[int, float]:
        """Return ``factor`` times the metric of the finished cells, by seed."""
        values = {}
        for cell in cells:
            if cell.finished(self.runs):
                stages = read_results(cell.folder(self.runs))
                metrics = {**stages["fit"]["metrics"], **stages["test"]["metrics"]}
                if metric in metrics:
                    values[cell.seed] = factor * metrics[metric]
        return values

    def missing_reason(self, cells: Sequence[Cell]) -> str:
        """Return why the first unfinished cell has no result: the last error in its log; empty if all finished."""
        for cell in cells:
            if not cell.finished(self.runs):
                log = cell.folder(self.runs) / "log.txt"
                lines = log.read_text().splitlines() if log.is_file() else None
                reason = "has not been trained" if lines is None else "has not finished"
                errors = [line.strip() for line in lines or [] if "error" in line.lower()]
                # The report may be published, so it must not contain paths of this machine.
                reason = errors[-1].replace(str(self.runs), "RUNS") if errors else reason
                return f"{cell.label} seed {cell.seed}: {reason}"
        return ""

    def row(
        self,
        label: str,
        cells: Sequence[Cell],
        paper: Published | None,
        *,
        tolerance: float = 0.0,
        metric: str = ACCURACY,
        factor: float = 100.0,
    ) -> Row:
        """Return a row with the mean of a metric over seeds; it is comparable if the scale trains in full."""
        values = list(self.results(cells, metric, factor).values())
        row = self.mean_row(label, values, paper, tolerance=tolerance, comparable=self.scale.full_training)
        return row if values else replace(row, reason=self.missing_reason(cells))

    def mean_row(
        self,
        label: str,
        values: Sequence[float],
        paper: Published | None,
        *,
        tolerance: float = 0.0,
        comparable: bool | None = None,
        digits: int = 2,
    ) -> Row:
        """Return a row with the mean of ``values``, one per seed; by default it is comparable if the data is real."""
        if not values:
            return Row(label, paper=paper, digits=digits)
        summary = summarize(values)
        half_width = None if math.isnan(summary.half_width) else summary.half_width
        comparable = not self.scale.embedded if comparable is None else comparable
        reason = "" if comparable else self.not_comparable_reason()
        return Row(label, summary.mean, paper, half_width, summary.count, tolerance, comparable, reason, digits)

    def claim(
        self,
        label: str,
        better: Sequence[Cell],
        worse: Sequence[Cell],
        *,
        published: float | None = None,
        metric: str = ACCURACY,
        factor: float = 100.0,
    ) -> Claim:
        """Return a claim with the difference of a metric, paired by seed."""
        pair = paired_difference(self.results(better, metric, factor), self.results(worse, metric, factor))
        if not pair.count:
            return Claim(label, reason=self.missing_reason([*better, *worse]), published=published)
        half_width = None if math.isnan(pair.half_width) else pair.half_width
        reason = "" if half_width is not None else "one seed has no interval"
        if self.scale.embedded:
            reason = self.not_comparable_reason()
        return Claim(label, pair.mean, half_width, pair.count, not self.scale.embedded, reason, published)

    def not_comparable_reason(self) -> str:
        """Return why results of this scale are not comparable with the paper's; empty if they are."""
        if self.scale.embedded:
            return "embedded data"
        return "" if self.scale.full_training else "shorter training"

    def save(self, figure: Figure, name: str) -> str:
        """Write a figure to the folder of the artifact and return its file name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_figure(self.folder / f"{name}.png", figure, dpi=110)
        return f"{name}.png"

    def load_model(self, cell: Cell) -> "StudiedModel | None":
        """Return the trained model of a text cell; None if the cell is not finished."""
        from fna_lightning.analysis import load

        if not cell.finished(self.runs):
            return None
        return load(cell.folder(self.runs) / "checkpoints" / "best.ckpt")

    def texts(self, model: "StudiedModel", split: str = "train") -> "list[Example]":
        """Return the texts over which graph measures are averaged."""
        return model.split_examples(split, self.scale.texts, self.scale.length)
