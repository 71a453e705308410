"""The report as JSON: which fields are in results.json, and how values are written."""

import json
import math
from pathlib import Path

import pytest
import torch

from fna_lightning.analysis.report import (
    AblationCurve,
    AblationReport,
    CrossHead,
    ExampleReport,
    HeadReport,
    LengthReport,
    ModelInfo,
    ModelReport,
    Report,
    SplitReport,
    Summary,
    to_json,
)
from fna_lightning.errors import UsageError

WEIGHTS = torch.tensor([[0.25, 0.75], [0.0, 1.0]])


def example_report() -> Report:
    head = HeadReport("layer", 0, {"entropy": 0.5, "mean_hops": math.nan}, [1.0, 0.25], [0.0, 1.5], WEIGHTS)
    cross = CrossHead("layer", 0, 1.5, WEIGHTS)
    model = ModelReport("positive", 0.9, True, {"positive": 0.9, "negative": 0.1}, [head], [cross], WEIGHTS)
    curve = AblationCurve([1.0], [0.9], [1.0])
    return Report(
        title="title",
        kind="text",
        unit="texts",
        version="1",
        max_length=8,
        seed=0,
        models=[ModelInfo("a", "DotProduct()", "best.ckpt", {"layer": "layer 1"})],
        examples=[ExampleReport("text 1", ["a", "b"], "positive", [model], pixels=torch.zeros(1, 2, 2))],
        split=SplitReport("val", 1, [[]]),
        ablation=[AblationReport([0.0], curve, curve)],
        lengths=[LengthReport([1], [None], [Summary(1.0, 0.0, 4)], [None])],
    )


def test_results_leave_out_tensors() -> None:
    results = to_json(example_report())
    (example,) = results["examples"]
    assert example == {
        "title": "text 1",
        "words": ["a", "b"],
        "label": "positive",
        "models": [
            {
                "prediction": "positive",
                "probability": 0.9,
                "correct": True,
                "probabilities": {"positive": 0.9, "negative": 0.1},
                "heads": [
                    {
                        "layer": "layer",
                        "head": 0,
                        "measures": {"entropy": 0.5, "mean_hops": None},
                        "spectrum": [1.0, 0.25],
                        "laplacian": [0.0, 1.5],
                        "near_uniform": False,
                    }
                ],
                "cross": [{"layer": "layer", "head": 0, "neighbors": 1.5}],
            }
        ],
        "stored": True,
        "truncated": False,
        "source_words": None,
        "target_words": None,
    }
    curve = {"probability": [1.0], "probability_low": [0.9], "probability_high": [1.0]}
    curve |= {"accuracy": None, "accuracy_low": None, "accuracy_high": None}
    assert results["ablation"] == [{"p": [0.0], "edges": curve, "nodes": curve}]
    assert results["lengths"] == [
        {
            "lengths": [1],
            "mean_hops": [None],
            "entropy": [{"mean": 1.0, "std": 0.0, "count": 4}],
            "effective_neighbors": [None],
        }
    ]
    assert results["split"] == {"name": "val", "count": 1, "models": [[]]}
    assert results["models"][0]["layers"] == {"layer": "layer 1"}


@pytest.mark.parametrize(("entropy", "uniform"), [(0.98, False), (0.981, True)])
def test_a_head_above_the_threshold_is_near_uniform(entropy: float, uniform: bool) -> None:
    head = HeadReport("layer", 0, {"entropy": entropy})
    assert head.near_uniform is uniform
    assert to_json(head)["near_uniform"] is uniform


def test_a_summary_is_plain_json() -> None:
    assert to_json({"gap": Summary(0.5, math.inf, 3)}) == {"gap": {"mean": 0.5, "std": None, "count": 3}}


def test_to_json_writes_the_numbers(tmp_path: Path) -> None:
    report = example_report()
    report.to_json(tmp_path / "new" / "results.json")
    assert json.loads((tmp_path / "new" / "results.json").read_text()) == to_json(report)


def test_examples_by_index() -> None:
    report = example_report()
    assert report.example(-1) is report.example(0) is report.examples[0]
    with pytest.raises(UsageError, match="there is no example 1; the report has 1, numbered from 0"):
        report.example(1)


def test_the_text_of_a_report_is_one_line() -> None:
    # notebooks store it beside the page
    assert repr(example_report()) == "Report(text: 1 example, models a)"
