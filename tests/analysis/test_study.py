"""``study``: the report of a checkpoint, without the command line."""

from pathlib import Path

import pytest
import torch

import fna_lightning.analysis.study_models as study_models
from fna_lightning.analysis import Report, study
from fna_lightning.analysis.measurements import align_points
from fna_lightning.analysis.models import StudiedModel
from fna_lightning.analysis.report import HeadReport, ModelReport
from fna_lightning.errors import UsageError
from fna_lightning.graph import measure

from helpers.tiny_runs import train_tiny

TEXTS = ["the plot was gripping", "the music was not what i call tinny"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("runs"), config="reviews_fna.yaml")


def test_study_returns_a_typed_report(checkpoint: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    reads: list[Path] = []
    read_checkpoint = study_models.read_checkpoint
    monkeypatch.setattr(study_models, "read_checkpoint", lambda path: (reads.append(path), read_checkpoint(path))[1])
    report = study(checkpoint, texts=TEXTS)
    assert reads == [checkpoint]
    assert isinstance(report, Report)
    assert [example.words for example in report.examples] == [text.split() for text in TEXTS]
    assert report.split is None
    for example in report.examples:
        (model,) = example.models
        for head in model.heads:
            assert head.measures["entropy"] == measure(head.weights)["entropy"].item()
            assert head.hops.shape == head.parents.shape == (len(example.words), len(example.words))


def test_opened_models_are_accepted_and_get_unique_labels(checkpoint: Path) -> None:
    model = study_models.open_model(checkpoint)
    assert isinstance(model, StudiedModel)
    report = study(model, against=[checkpoint], texts=TEXTS[:1])
    assert [info.label for info in report.models] == ["reviews_fna (1)", "reviews_fna (2)"]
    first, second = report.examples[0].models
    assert [head.measures for head in first.heads] == [head.measures for head in second.heads]


def test_progress_reaches_every_total(checkpoint: Path) -> None:
    totals: dict[str, int] = {}
    steps: dict[str, int] = {}

    def track(description: str, total: int) -> study_models.Tick:
        totals[description], steps[description] = total, 0

        def tick() -> None:
            steps[description] += 1

        return tick

    study(checkpoint, split="test", count=4, max_length=12, track=track)
    assert set(totals) == {"examples in depth", "split", "ablation", "path length"}
    assert steps == totals


def test_a_text_model_refuses_images(checkpoint: Path) -> None:
    with pytest.raises(UsageError, match="is a text model; pass texts by --text"):
        study(checkpoint, images=["cat.png"])


def test_points_of_other_models_are_aligned_with_the_first() -> None:
    points = torch.tensor([[0.0, 1.0], [2.0, 0.0], [-1.0, -1.0]], dtype=torch.float64)

    def report(*maps: torch.Tensor | None) -> ModelReport:
        matrix = torch.eye(3)
        heads = [HeadReport("layer", head, {}, [], matrix, matrix, matrix, xy) for head, xy in enumerate(maps)]
        return ModelReport("", 1.0, heads)

    # the second model has mirrored points and one more head, which has no counterpart
    first, second = align_points([report(points, None), report(-points, points, points)])
    assert first.heads[0].points is points
    assert second.heads[0].points is not None
    torch.testing.assert_close(second.heads[0].points, points)
    assert second.heads[1].points is points
    assert second.heads[2].points is points
