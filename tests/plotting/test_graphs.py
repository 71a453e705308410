"""Figures of attention graphs: labels, colors and scales."""

import pytest
import torch
from matplotlib.axes import Axes

from fna_lightning.graph import path_lengths
from fna_lightning.plotting.graphs import (
    MOST_LABELS,
    alignment_figure,
    draw_heads,
    draw_hops,
    draw_points,
    draw_weights,
    matrix_figure,
)
from fna_lightning.plotting.style import SEQUENTIAL, new_figure, styled

from helpers.matrices import random_matrix


def tick_labels(axes: Axes) -> list[str]:
    return [label.get_text() for label in axes.get_xticklabels()]


def words(count: int) -> list[str]:
    return [f"word{number}" for number in range(count)]


@pytest.mark.parametrize("draw", [draw_hops, draw_weights])
def test_tokens_are_written_at_the_axes_where_they_fit(draw) -> None:
    for count in (5, MOST_LABELS):
        figure, axes = matrix_figure(words(count), count)
        draw(axes, torch.ones(count, count), words(count))
        assert tick_labels(axes) == words(count)
        assert [label.get_text() for label in axes.get_yticklabels()] == words(count)
        figure.canvas.draw()
        # labels do not overlap: each token has more room than the height of its letters
        assert axes.get_window_extent().height / count > 7 / 72 * figure.dpi
    count = MOST_LABELS + 1
    _, axes = matrix_figure(words(count), count)
    draw(axes, torch.ones(count, count), words(count))
    assert words(count)[0] not in tick_labels(axes)
    assert all(float(tick).is_integer() for tick in axes.get_xticks())


def test_every_number_of_hops_has_a_color_and_unreachable_pairs_have_none() -> None:
    causal = torch.ones(4, 4).tril() / torch.arange(1, 5)[:, None]
    _, axes = matrix_figure(None, 4)
    draw_hops(axes, path_lengths(causal).hops)
    (image,) = axes.images
    assert image.get_array().mask.sum() == 6
    assert image.get_cmap().N == 3
    assert image.get_clim() == (-0.5, 2.5)


def test_weights_start_at_0() -> None:
    _, axes = matrix_figure(None, 6)
    draw_weights(axes, random_matrix(6, 0))
    assert axes.images[0].get_clim()[0] == 0
    assert axes.images[0].get_cmap().name == SEQUENTIAL


def test_the_outermost_tokens_of_a_diffusion_map_are_labeled() -> None:
    points = torch.zeros(30, 2, dtype=torch.float64)
    points[7, 0], points[9, 1] = 5.0, 4.0
    _, axes = new_figure()
    draw_points(axes, points, words(30))
    labels = [text.get_text() for text in axes.texts]
    assert labels[:2] == ["word7", "word9"]
    assert len(labels) == 10
    # the label of the rightmost token is on its left
    assert axes.texts[0].get_ha() == "right"
    _, axes = new_figure()
    draw_points(axes, torch.zeros(30, 2), words(30))
    assert not axes.texts


def test_heads_without_a_value_are_empty() -> None:
    _, axes = new_figure()
    draw_heads(axes, {("a", 0): 0.1, ("a", 1): 0.2, ("b", 1): 0.3})
    assert axes.images[0].get_array().mask.tolist() == [[False, False], [True, False]]


def test_long_words_of_an_alignment_are_shortened() -> None:
    with styled():
        figure = alignment_figure([torch.rand(1, 2)], ["a", "Donaudampfschifffahrt"], ["b"])
    assert tick_labels(figure.axes[0]) == ["a", "Donaudampfsch…"]
