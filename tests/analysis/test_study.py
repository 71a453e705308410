"""``load`` and ``study``: the report of a checkpoint, without the command line."""

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from fna_lightning.analysis import Report, load, loading, study
from fna_lightning.analysis.heads import align_points, single_heads
from fna_lightning.analysis.models import StudiedModel
from fna_lightning.analysis.report import HeadReport, ModelReport
from fna_lightning.analysis.study_models import Tick
from fna_lightning.analysis.tables import report_tables
from fna_lightning.errors import UsageError
from fna_lightning.graph import MEASURES, laplacian_spectrum, measure, rollout, spectrum
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.tasks import TextClassification
from fna_lightning.utils.console import wide_console

from helpers.tiny_runs import train_tiny

TEXTS = ["the plot was gripping", "the music was not what i call tinny"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("runs"), config="reviews_fna.yaml")


def test_study_returns_a_typed_report(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read_checkpoint = loading.read_checkpoint
    monkeypatch.setattr(loading, "read_checkpoint", lambda path: (reads.append(path), read_checkpoint(path))[1])
    report = study(checkpoint, texts=TEXTS)
    assert reads == [checkpoint]
    assert isinstance(report, Report)
    assert (report.kind, report.unit) == ("text", "texts")
    assert report.models[0].layers == {"encoder.layers.0.self_attn": "layer 1"}
    assert [example.words for example in report.examples] == [text.split() for text in TEXTS]
    assert report.split is None
    for example in report.examples:
        (model,) = example.models
        assert model.correct is None
        assert next(iter(model.probabilities)) == model.prediction
        assert sum(model.probabilities.values()) == pytest.approx(1.0)
        assert list(model.probabilities.values()) == sorted(model.probabilities.values(), reverse=True)
        # four heads, then their mean
        assert [head.head for head in model.heads] == [0, 1, 2, 3, -1]
        for head in model.heads:
            assert head.weights is not None
            assert head.weights.dtype == torch.float32
            assert head.measures["entropy"] == measure(head.weights)["entropy"].item()
            assert head.hops.shape == head.parents.shape == (len(example.words), len(example.words))
        matrices = [head.weights for head in model.heads]
        torch.testing.assert_close(matrices[-1], torch.stack(matrices[:-1]).mean(dim=0))
        torch.testing.assert_close(model.rollout, rollout([matrices[-1]]).float())


def test_numbers_of_python_json_and_terminal_agree_with_the_graph_functions(checkpoint: Path, tmp_path: Path) -> None:
    model = load(checkpoint)
    report = study(model, texts=TEXTS[:1], count=5, max_length=24)
    report.to_json(tmp_path / "results.json")
    results = json.loads((tmp_path / "results.json").read_text())
    # the graph functions on weights that are recorded without the analysis package
    ids = torch.tensor([model.codec.encode(TEXTS[0])])
    lengths = torch.tensor([ids.size(1)])
    (layer,) = attention_maps(model.task, lambda: (model.task(ids, lengths), {"": lengths})[1]).values()
    expected = measure(layer.weights, layer.lengths)
    for head, written in zip(
        report.examples[0].models[0].heads, results["examples"][0]["models"][0]["heads"], strict=True
    ):
        assert written["measures"] == {
            name: value if math.isfinite(value) else None for name, value in head.measures.items()
        }
        if head.head >= 0:
            assert head.measures == {name: value[0, head.head].item() for name, value in expected.items()}
            weights = layer.weights[0, head.head]
            assert written["spectrum"] == spectrum(weights).abs().tolist()
            assert written["laplacian"] == laplacian_spectrum(weights).tolist()
    with torch.no_grad():
        probability = model.task(ids, lengths).softmax(dim=-1).max().item()
    assert results["examples"][0]["models"][0]["probability"] == pytest.approx(probability, abs=1e-6)
    # the split is the mean over its examples, and the terminal shows the mean over its heads
    of_split = [example.models[0] for example in report.examples[1:]]
    assert report.split is not None
    assert report.split.count == len(of_split) == 5
    console = wide_console()
    with console.capture() as capture:
        for part in report_tables(report):
            console.print(part)
    rows = {
        cells[1].strip(): cells[2].strip() for line in capture.get().splitlines() if len(cells := line.split("│")) == 4
    }
    for name in MEASURES:
        values = [[head.measures[name] for head in single_heads(example.heads)] for example in of_split]
        for number, head in enumerate(single_heads(report.split.models[0])):
            column = [row[number] for row in values]
            assert head.measures[name].mean == pytest.approx(sum(column) / 5)
            assert results["split"]["models"][0][number]["measures"][name]["mean"] == head.measures[name].mean
        assert rows[name] == f"{sum(map(sum, values)) / 20:.4f}"
    right = sum(example.correct is True for example in of_split)
    assert f"{right} of 5 predictions are right" in capture.get()


def test_texts_come_first_and_only_a_few_examples_of_the_split_are_stored(checkpoint: Path) -> None:
    report = study(checkpoint, texts=TEXTS, split="test", count=4, depth=1, max_length=12)
    assert [example.title for example in report.examples[:3]] == ["text 1", "text 2", "test 0"]
    assert [example.stored for example in report.examples] == [True, True, True, False, False, False]
    for example in report.examples:
        (model,) = example.models
        assert (model.rollout is None) is (not example.stored)
        for head in model.heads:
            assert set(head.measures) == set(MEASURES)
            tensors = (head.weights, head.parents, head.hops)
            assert [tensor is None for tensor in tensors] == [not example.stored] * 3
            assert bool(head.spectrum) is bool(head.laplacian) is example.stored
    for example in report.examples[2:]:
        assert example.label in ("negative", "positive")
        assert example.models[0].correct is (example.models[0].prediction == example.label)
    assert [example.truncated for example in report.examples[:2]] == [False, False]
    assert any(example.truncated for example in report.examples[2:])
    # without a split or a count, only the texts are studied
    assert len(study(checkpoint, texts=TEXTS).examples) == 2


def test_measures_against_length(checkpoint: Path) -> None:
    report = study(checkpoint, split="test", count=4, max_length=20)
    (lengths,) = report.lengths
    assert lengths.lengths == [4, 8, 12, 16, 20]
    model = load(checkpoint)
    long_enough = [example for example in model.split_examples("test", 4, 20) if len(example.input) >= 8]
    values = [
        measure(layer.weights)["effective_neighbors"]
        for example in long_enough
        for layer in model.maps(example.input[:8]).values()
    ]
    neighbors, entropy = lengths.effective_neighbors[1], lengths.entropy[1]
    assert neighbors is not None
    assert neighbors.mean == pytest.approx(torch.cat(values).mean().item())
    assert neighbors.count == 4 * len(long_enough)
    assert entropy is not None
    assert 0.0 < entropy.mean <= 1.0


def test_ablation_has_intervals(checkpoint: Path) -> None:
    (curves,) = study(checkpoint, split="test", count=6, max_length=12).ablation
    for curve in (curves.edges, curves.nodes):
        assert curve.accuracy is not None
        for name in ("probability", "accuracy"):
            value, low, high = (getattr(curve, name + end) for end in ("", "_low", "_high"))
            assert all(0.0 <= a <= b <= c <= 1.0 for a, b, c in zip(low, value, high, strict=True))
            assert len(value) == len(curves.p)
    # the user's texts are not a sample: without removal nothing is random
    (curves,) = study(checkpoint, texts=TEXTS).ablation
    assert curves.edges.probability_low[0] == pytest.approx(curves.edges.probability_high[0], abs=1e-5)
    assert curves.edges.probability_low[5] < curves.edges.probability_high[5]
    assert curves.edges.accuracy is None


def test_opened_models_are_accepted_and_get_unique_labels(checkpoint: Path) -> None:
    model = load(checkpoint)
    assert isinstance(model, StudiedModel)
    report = study(model, against=[checkpoint.parents[1]], texts=TEXTS[:1])
    assert [info.label for info in report.models] == ["reviews_fna (1)", "reviews_fna (2)"]
    first, second = report.examples[0].models
    assert [head.measures for head in first.heads] == [head.measures for head in second.heads]


def test_load_returns_the_task_in_evaluation_mode(checkpoint: Path) -> None:
    for path in (checkpoint, str(checkpoint.parents[1])):
        model = load(path)
        assert isinstance(model.task, TextClassification)
        assert not model.task.training
        assert model.path == checkpoint
    with pytest.raises(UsageError, match=r"use fna_lightning\.analysis\.load\(path\)\.task"):
        TextClassification.load_from_checkpoint(checkpoint)


def test_progress_reaches_every_total(checkpoint: Path) -> None:
    totals: dict[str, int] = {}
    steps: dict[str, int] = {}

    def track(description: str, total: int) -> Tick:
        totals[description], steps[description] = total, 0

        def tick() -> None:
            steps[description] += 1

        return tick

    study(checkpoint, split="test", count=4, max_length=12, track=track)
    assert set(totals) == {"examples", "ablation", "measures against length"}
    assert steps == totals


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"images": ["cat.png"]}, "is a text model and does not take images; pass texts by --text, or by texts=[...]"),
        ({"sources": ["a"]}, "is a text model and does not take sources"),
        ({"batch": torch.zeros(1, 2)}, "is a text model and does not take batch"),
        ({"texts": "the plot"}, "texts must be a list, got the single value 'the plot'; pass texts=[...]"),
        ({"texts": [7]}, "texts must be a list of strings, got 7 in it"),
        ({"texts": [" "]}, "text 1 (' ') has no token"),
        ({"count": 0}, "count must be at least 1, got 0"),
        ({"depth": -1}, "depth must be at least 0, got -1"),
        ({"max_length": 1}, "max_length must be at least 2, got 1"),
        ({"texts": ["a"], "tokenizer": object()}, "a tokenizer goes with a transformers model, not with a path"),
    ],
)
def test_unsuitable_arguments(checkpoint: Path, arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        study(checkpoint, **arguments)


def test_points_of_other_models_are_aligned_with_the_first() -> None:
    points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [-1.0, -1.0]], dtype=torch.float64)

    def report(*maps: torch.Tensor | None) -> ModelReport:
        heads = [HeadReport("layer", head, {}, points=xy) for head, xy in enumerate(maps)]
        return ModelReport("", 1.0, None, {}, heads)

    # the second model has mirrored points and one more head, which has no counterpart
    first, second = align_points([report(points, None), report(-points, points, points)])
    assert first.heads[0].points is points
    assert second.heads[0].points is not None
    torch.testing.assert_close(second.heads[0].points, points)
    assert second.heads[1].points is points
    assert second.heads[2].points is points
