"""The workbench of a piece: results of its runs, its folder, and the rows it makes of them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import paired_difference, summarise
from fna_lightning.reproduction.artifact import Claim, Published, Row
from fna_lightning.reproduction.scales import Scale
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.files import write_figure

if TYPE_CHECKING:
    from fna_lightning.analysis.models import Example, StudiedModel

ACCURACY = "test/accuracy"


@dataclass(frozen=True)
class Bench:
    """Where a piece works.

    Attributes:
        scale: how large everything is.
        runs: the folder of all cells.
        folder: of the piece, for its figures.
    """

    scale: Scale
    runs: Path
    folder: Path

    def results(self, cells: Sequence[Cell], metric: str = ACCURACY, factor: float = 100.0) -> dict[int, float]:
        """Return the metric by seed, of the cells that are finished."""
        found = {}
        for cell in cells:
            if cell.finished(self.runs):
                stages = read_results(cell.folder(self.runs))
                values = {**stages["fit"]["metrics"], **stages["test"]["metrics"]}
                if metric in values:
                    found[cell.seed] = factor * values[metric]
        return found

    def failure(self, cells: Sequence[Cell]) -> str:
        """Return why there is no result: what the log of the first cell without one complains of."""
        for cell in cells:
            if not cell.finished(self.runs):
                log = cell.folder(self.runs) / "log.txt"
                lines = log.read_text().splitlines() if log.is_file() else None
                said = "has not been trained" if lines is None else "has not finished"
                complaints = [line.strip() for line in lines or [] if "error" in line.lower()]
                # a page may be published, and says nothing of where it was made
                said = complaints[-1].replace(str(self.runs), "RUNS") if complaints else said
                return f"{cell.label} seed {cell.seed}: {said}"
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
        """Return the mean of a metric over seeds beside the paper's; comparable if trained as there."""
        values = list(self.results(cells, metric, factor).values())
        row = self.measured(label, values, paper, tolerance=tolerance, comparable=self.scale.full_training)
        return row if values else replace(row, reason=self.failure(cells))

    def measured(
        self,
        label: str,
        values: Sequence[float],
        paper: Published | None,
        *,
        tolerance: float = 0.0,
        comparable: bool | None = None,
        digits: int = 2,
    ) -> Row:
        """Return the mean of ``values``, one a seed; comparable on real data unless told otherwise."""
        if not values:
            return Row(label, paper=paper, digits=digits)
        summary = summarise(values)
        width = None if math.isnan(summary.half_width) else summary.half_width
        comparable = not self.scale.embedded if comparable is None else comparable
        reason = "" if comparable else self.unlike()
        return Row(label, summary.mean, paper, width, summary.count, tolerance, comparable, reason, digits)

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
        """Return the difference of a metric, paired over seeds."""
        one, other = self.results(better, metric, factor), self.results(worse, metric, factor)
        pair = paired_difference(one, other)
        if not pair.count:
            return Claim(label, reason=self.failure([*better, *worse]), published=published)
        width = None if math.isnan(pair.half_width) else pair.half_width
        reason = self.unlike() if self.scale.embedded else "" if width is not None else "one seed has no interval"
        return Claim(label, pair.mean, width, pair.count, not self.scale.embedded, reason, published)

    def unlike(self) -> str:
        """Return in what this scale is unlike the paper; "" if in nothing."""
        if self.scale.embedded:
            return "embedded data"
        return "" if self.scale.full_training else "shorter training"

    def save(self, figure: Figure, name: str) -> str:
        """Write a picture into the folder of the piece and return its file name."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_figure(self.folder / f"{name}.png", figure, dpi=110)
        return f"{name}.png"

    def subject(self, cell: Cell) -> "StudiedModel | None":
        """Return the trained model of a text cell; None if it is not finished."""
        from fna_lightning.analysis.study_models import open_model

        if not cell.finished(self.runs):
            return None
        return open_model(cell.folder(self.runs) / "checkpoints" / "best.ckpt")

    def texts(self, subject: "StudiedModel", split: str = "train") -> "list[Example]":
        """Return the texts over which graphs are averaged."""
        return subject.split_examples(split, self.scale.texts, self.scale.length)
