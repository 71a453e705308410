"""The style of all Matplotlib figures: colors that color-blind readers can tell apart, color maps and font sizes."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cycler import cycler
from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

# the palette of Okabe and Ito without yellow and black
BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER = COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
GRAY = "#777777"
# background of heat maps, where there is no value
MISSING = "#bbbbbb"
# color maps with even steps of lightness: of values, and of a second quantity beside them
SEQUENTIAL = "viridis"
SECONDARY = "cividis"
DIVERGING = "RdBu_r"

INK = "#333333"
# characters of a token at an axis
LONGEST_LABEL = 14
RC: dict[Any, Any] = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.titlelocation": "left",
    "axes.labelsize": 9,
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "figure.titlesize": 10,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.linewidth": 0.7,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.alpha": 0.3,
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.5,
    "lines.markersize": 4,
    "axes.prop_cycle": cycler(color=COLORS),
    "image.cmap": SEQUENTIAL,
    "image.interpolation": "nearest",
}


@contextmanager
def styled() -> Iterator[None]:
    """Give new figures the style inside the context; also a decorator of functions that draw.

    Matplotlib's settings outside the context do not change.
    """
    with rc_context(RC):
        yield


def new_figure(width: float = 4.4, height: float = 3.4, *, dpi: float = 90) -> tuple[Figure, Axes]:
    """Return a figure that is not attached to a window system, and its axes."""
    figure = Figure(figsize=(width, height), dpi=dpi)
    # fixed margins that fit these figures: computing them automatically would double the drawing time during training
    figure.subplots_adjust(left=0.14, right=0.86, bottom=0.14, top=0.85)
    return figure, figure.add_subplot()


def set_titles(axes: Axes, title: str, detail: str = "") -> None:
    """Set the title of a figure, and below it a line in smaller gray letters."""
    axes.set_title(title, pad=18 if detail else None)
    if detail:
        axes.annotate(detail, (0, 1), (0, 5), "axes fraction", "offset points", color=GRAY, fontsize=8)


def short_label(word: str) -> str:
    """Return a token as a label of an axis, shortened if it is long."""
    # a dollar sign would start a formula
    word = word.replace("$", r"\$")
    return word if len(word) <= LONGEST_LABEL else f"{word[: LONGEST_LABEL - 1]}…"
