"""Report of runs by epoch: a table in the terminal and a figure."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from rich.console import Console
from rich.table import Table

from fna_lightning.experiments.epochs import Epochs, mean_epochs, read_epochs
from fna_lightning.experiments.grid import Cell
from fna_lightning.plotting.style import COLORS, styled
from fna_lightning.utils.files import write_figure

# column of metrics.csv: heading in the table
HEADINGS = {
    "val/accuracy": "val accuracy",
    "val/loss": "val loss",
    "attention/spectral_gap": "gap",
    "attention_detail/entropy": "entropy",
    "attention/mean_hops": "mean hops",
}
# columns that are drawn if the runs logged them
DRAWN = ("val/accuracy", "attention/spectral_gap", "attention_detail/entropy", "attention/mean_hops")
MARKERS = "os^Dv"


def report_epochs(cells: Iterable[Cell], root: Path, console: Console) -> Path | None:
    """Print a table of epochs and draw ``root/training.png``; do nothing if no run logged its spectral gap."""
    runs: dict[str, list[Epochs]] = defaultdict(list)
    for cell in cells:
        runs[cell.label].append(read_epochs(cell.folder(root) / "metrics.csv", HEADINGS))
    means = {label: mean_epochs(epochs) for label, epochs in runs.items()}
    if "attention/spectral_gap" not in _logged(means):
        return None
    print_epochs(means, console)
    draw_epochs(means, root / "training.png")
    console.print(f"accuracy and attention graph by epoch: {root}/training.png", highlight=False)
    return root / "training.png"


def print_epochs(means: dict[str, Epochs], console: Console) -> None:
    """Print one row per label and epoch; epochs are counted from 1."""
    columns = [name for name in HEADINGS if name in _logged(means)]
    headings = [HEADINGS[name] for name in columns]
    table = Table("", "epoch", *headings, title="validation by epoch (means over seeds)", title_justify="left")
    for label, epochs in means.items():
        for index, (epoch, row) in enumerate(epochs.items()):
            numbers = [f"{row[name]:.4f}" if name in row else "-" for name in columns]
            table.add_row("" if index else label, str(epoch + 1), *numbers, end_section=index == len(epochs) - 1)
    console.print(table)


@styled()
def draw_epochs(means: dict[str, Epochs], path: Path) -> None:
    """Draw one panel per measure with one curve per label."""
    panels = [name for name in DRAWN if name in _logged(means)]
    figure = Figure(figsize=(3.1 * len(panels), 3.2), dpi=150, layout="constrained")
    for position, name in enumerate(panels, start=1):
        axes = figure.add_subplot(1, len(panels), position)
        for number, (label, epochs) in enumerate(means.items()):
            points = [(epoch + 1, row[name]) for epoch, row in epochs.items() if name in row]
            if points:
                x, y = zip(*points, strict=True)
                axes.plot(x, y, color=COLORS[number % len(COLORS)], marker=MARKERS[number % 5], ms=4, label=label)
        axes.set(xlabel="epoch", title=HEADINGS[name])
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.grid(alpha=0.3)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=min(4, len(labels)))
    write_figure(path, figure)


def _logged(means: dict[str, Epochs]) -> set[str]:
    """Return the columns that any run logged in any epoch."""
    return {name for epochs in means.values() for row in epochs.values() for name in row}
