"""How the runs of a sweep went, epoch by epoch: accuracy beside the graph of the attention."""

import csv
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.table import Table

from fna_lightning.experiments.grid import Cell
from fna_lightning.plotting.graphs import COLORS
from fna_lightning.utils.files import write_figure

# column of metrics.csv: what it is called in the table
COLUMNS = {
    "val/accuracy": "val accuracy",
    "val/loss": "val loss",
    "attention/spectral_gap": "gap",
    "attention/entropy": "entropy",
    "attention/mean_hops": "mean hops",
}
# what is drawn, if it was measured
DRAWN = ("val/accuracy", "attention/spectral_gap", "attention/entropy", "attention/mean_hops")
MARKERS = "os^Dv"

Epochs = dict[int, dict[str, float]]


def write_epochs(cells: Iterable[Cell], root: Path, console: Console) -> Path | None:
    """Print one table of epochs and draw ``root/training.png``; None, and nothing said, if no attention was watched."""
    by_label: dict[str, list[Epochs]] = defaultdict(list)
    for cell in cells:
        by_label[cell.label].append(read_epochs(cell.folder(root) / "metrics.csv"))
    means = {label: mean_epochs(runs) for label, runs in by_label.items()}
    if not any("attention/spectral_gap" in row for epochs in means.values() for row in epochs.values()):
        return None
    print_epochs(means, console)
    draw_epochs(means, root / "training.png")
    console.print(f"accuracy and the attention's graph, epoch by epoch: {root}/training.png", highlight=False)
    return root / "training.png"


def read_epochs(path: Path) -> Epochs:
    """Return what metrics.csv of a run says of each epoch."""
    epochs: Epochs = defaultdict(dict)
    if path.is_file():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                known = {name: float(row[name]) for name in COLUMNS if row.get(name)}
                if known and row.get("epoch"):
                    epochs[int(row["epoch"])] |= known
    return dict(sorted(epochs.items()))


def mean_epochs(runs: list[Epochs]) -> Epochs:
    """Return the means over the runs that reached an epoch."""
    together: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for epochs in runs:
        for epoch, row in epochs.items():
            for name, value in row.items():
                together[epoch][name].append(value)
    return {
        epoch: {name: statistics.fmean(values) for name, values in row.items()}
        for epoch, row in sorted(together.items())
    }


def print_epochs(means: dict[str, Epochs], console: Console) -> None:
    """Print one line for each label and epoch; epochs count from 1, as people do."""
    columns = [name for name in COLUMNS if any(name in row for epochs in means.values() for row in epochs.values())]
    titles = [COLUMNS[name] for name in columns]
    table = Table("", "epoch", *titles, title="validation, epoch by epoch (means over seeds)", title_justify="left")
    for label, epochs in means.items():
        for place, (epoch, row) in enumerate(epochs.items()):
            numbers = [f"{row[name]:.4f}" if name in row else "-" for name in columns]
            table.add_row("" if place else label, str(epoch + 1), *numbers, end_section=place == len(epochs) - 1)
    console.print(table)


def draw_epochs(means: dict[str, Epochs], path: Path) -> None:
    """Draw one panel for each measure, one curve for each label."""
    panels = [name for name in DRAWN if any(name in row for epochs in means.values() for row in epochs.values())]
    figure = Figure(figsize=(3.1 * len(panels), 3.2), dpi=150, layout="constrained")
    for place, name in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), place)
        for number, (label, epochs) in enumerate(means.items()):
            points = [(epoch + 1, row[name]) for epoch, row in epochs.items() if name in row]
            if points:
                x, y = zip(*points, strict=True)
                axes.plot(x, y, color=COLORS[number % len(COLORS)], marker=MARKERS[number % 5], ms=4, label=label)
        axes.set(xlabel="epoch", title=COLUMNS[name])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)), frameon=False)
    write_figure(path, figure)
