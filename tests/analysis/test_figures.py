"""The Plotly figures of a report in Python; test_page.py compares them with those of the page."""

import re

import numpy as np
import pytest
import torch

from fna_lightning.analysis import figure_styles, figures
from fna_lightning.analysis.report import Report
from fna_lightning.errors import UsageError

from helpers.reports import CROSS_LAYER, LAYERS, field_report, image_report, text_report, translation_report

WORDS = ["the", "plot", "<b>was</b>", "the", "a word of more than sixteen letters"]
FIRST, SECOND = LAYERS


@pytest.fixture(scope="module")
def report() -> Report:
    return text_report(WORDS, models=2, heads=2)


def test_weights_have_a_label_for_each_token(report: Report) -> None:
    figure = figures.weights(report, 0, 1, SECOND, 1)
    head = report.examples[0].models[1].heads[4]
    assert (head.layer, head.head) == (SECOND, 1)
    assert np.array_equal(figure.data[0].z, head.weights.double().numpy())
    # positions are categories, because "the" occurs twice; labels are shown literally and shortened
    assert list(figure.data[0].x) == ["0", "1", "2", "3", "4"]
    expected = {"0": "the", "1": "plot", "2": "&lt;b&gt;was&lt;/b&gt;", "3": "the", "4": "a word of more …"}
    assert figure.layout.xaxis.labelalias == figure.layout.yaxis.labelalias == expected
    assert figure.layout.template == figure_styles.theme()


def test_the_grid_marks_near_uniform_heads(report: Report) -> None:
    grid = figures.grid(report, measure="entropy").data[0]
    assert list(grid.x) == ["0", "1", "mean"]
    assert list(grid.y) == ["layer 1", "layer 2"]
    assert grid.text[0][0] == "≈"
    assert grid.text[1][0] == ""
    assert grid.z[0][0] == pytest.approx(1)


def test_lines_are_as_opaque_as_their_weight(report: Report) -> None:
    figure = figures.lines(report, 0, 0, SECOND, 0)
    weights = report.examples[0].models[0].heads[3].weights
    strongest = figure.data[7]
    assert strongest.opacity == 1
    i, j = divmod(weights.argmax().item(), len(WORDS))
    assert (i, j) in set(zip(strongest.y[::3], strongest.y[1::3], strict=True))
    # uniform weights: one quarter of the opacity at most
    uniform = figures.lines(report, 0, 0, FIRST, 0)
    assert [level for level, trace in enumerate(uniform.data[:8]) if trace.y] == [2]
    assert len(uniform.data[2].y) == 3 * len(WORDS) ** 2


def test_pairs_without_a_path_are_blank() -> None:
    report = text_report(["a", "b", "c"], models=1, heads=1)
    head = report.examples[0].models[0].heads[0]
    assert head.hops is not None
    head.hops[0, 2] = -1
    figure = figures.hops(report, 0, 0, FIRST, 0)
    assert np.isnan(figure.data[0].z[0, 2])
    assert figure.data[0].zmax == 1


def test_outliers_are_far_from_the_center_and_from_each_other() -> None:
    points = torch.cat([torch.randn(50, 2) * 0.01, torch.tensor([[5.0, 0.0], [5.0, 0.01], [0.0, -7.0]])])
    labeled = figures.outliers(points)
    assert {50, 52} <= set(labeled) or {51, 52} <= set(labeled)
    assert not {50, 51} <= set(labeled)


def test_curves_of_all_models_have_their_intervals(report: Report) -> None:
    ablation = figures.ablation(report, "nodes")
    assert [trace.name for trace in ablation.data] == [None, "model a", None, "model b"]
    assert list(ablation.data[0].y) == [0.9, 0.7, 0.3, 0.6]
    entropy = figures.lengths(report, "entropy")
    assert entropy.layout.yaxis.title.text == "entropy"
    assert list(entropy.data[1].x) == [8, 16]
    spectrum = figures.spectrum(report, 0, SECOND, 1)
    assert [list(trace.y) for trace in spectrum.data] == [
        model.heads[4].spectrum for model in report.examples[0].models
    ]
    assert figures.laplacian(report, 0, SECOND, 1).data[0].y[0] == pytest.approx(0)


def test_cross_attention_images_and_fields() -> None:
    cross = figures.weights(translation_report(), 1, 0, CROSS_LAYER, 0)
    assert cross.data[0].z.shape == (3, 2)
    assert cross.layout.xaxis.title.text == "source token"
    overlay = figures.overlay(image_report(), head=1)
    assert overlay.data[0].z.shape == (4, 4)
    assert overlay.layout.images[0].source.startswith("data:image/png;base64,")
    field = figures.field_map(field_report(), query=1)
    assert len(field.data[0].marker.color) == 30
    assert list(field.data[1].marker.size) == [7, 16, 7]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda report: figures.weights(report, 0, 0, "no layer"),
            "there is no head 0 in layer 'no layer'; the layers are",
        ),
        (lambda report: figures.weights(report, 1), "the matrices of this example are not stored"),
        (lambda report: figures.overlay(report), "example 0 is not an image"),
        (lambda report: figures.field_map(report), "example 0 has no coordinates"),
        (lambda _: figures.hops(translation_report(), 1, 0, CROSS_LAYER), "is cross-attention"),
    ],
)
def test_errors(report: Report, call, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        call(report)
