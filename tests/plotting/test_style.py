"""The style of Matplotlib figures: it applies inside the context only, and to the figures of the package."""

import ast
from pathlib import Path

import matplotlib as mpl
import pytest

from fna_lightning.plotting.fields import curve_figure
from fna_lightning.plotting.style import COLORS, RC, new_figure, set_titles, short_label, styled

ROOT = Path(__file__).parents[2]
DRAWING = [
    path
    for folder in ("fna_lightning", "callbacks", "tasks")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if "matplotlib" in path.read_text() and path.name != "style.py"
]


def test_settings_outside_the_context_do_not_change() -> None:
    before = dict(mpl.rcParams)
    with styled():
        assert mpl.rcParams["axes.titlesize"] == RC["axes.titlesize"]
        _, axes = new_figure()
        assert not axes.spines["top"].get_visible()
    assert dict(mpl.rcParams) == before
    with pytest.raises(ZeroDivisionError), styled():
        _ = 1 / 0
    assert dict(mpl.rcParams) == before


def test_figures_use_the_palette_and_the_font_sizes() -> None:
    figure = curve_figure({f"head {head}": {16: 1.0 + head, 64: 2.0 + head} for head in range(6)}, "neighbors")
    (axes,) = figure.axes
    assert [line.get_color() for line in axes.lines] == list(COLORS)
    assert axes.xaxis.label.get_fontsize() == RC["axes.labelsize"]


def test_the_palette_has_six_different_colors() -> None:
    assert len(set(COLORS)) == 6


def test_titles() -> None:
    with styled():
        _, axes = new_figure()
        set_titles(axes, "Hops", "layer 1, head 2")
    assert axes.get_title(loc="left") == "Hops"
    assert [text.get_text() for text in axes.texts] == ["layer 1, head 2"]


@pytest.mark.parametrize(
    ("word", "label"), [("film", "film"), ("a" * 14, "a" * 14), ("a" * 15, "a" * 13 + "…"), ("$5", r"\$5")]
)
def test_labels_of_tokens(word: str, label: str) -> None:
    assert short_label(word) == label


@pytest.mark.parametrize("path", DRAWING, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_module_has_colors_or_color_maps_of_its_own(path: Path) -> None:
    """Colors come from plotting/style.py; the map of terrain and the two extra colors of field attentions excepted."""
    allowed = {"gist_earth", "gray", "#F0B27A", "#8B2500"}
    names = {"viridis", "Blues", "magma", "cividis", "plasma", "RdBu_r", "inferno"}
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value not in allowed:
            assert not (node.value.startswith("#") and len(node.value) == 7), node.value
            assert node.value not in names, node.value
