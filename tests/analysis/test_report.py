"""The JSON of a report: which fields are in results.json, which only on the page, and how they are encoded."""

import base64
import math

import numpy as np
import torch

from fna_lightning.analysis.report import (
    NO_PARENT,
    AblationCurve,
    AblationReport,
    ExampleReport,
    GrowthReport,
    HeadReport,
    ModelInfo,
    ModelReport,
    Report,
    SplitReport,
    Summary,
    to_json,
)

WEIGHTS = torch.tensor([[0.25, 0.75], [0.0, 1.0]], dtype=torch.float64)
PARENTS = torch.tensor([[-1, 0], [-1, -1]], dtype=torch.int32)


def example_report() -> Report:
    head = HeadReport("layer", 0, {"mean_hops": math.nan}, [1.0, 0.25], WEIGHTS, PARENTS, PARENTS, None)
    model = ModelReport("positive", 0.9, [head], b"png")
    pixels = torch.zeros(1, 2, 2, dtype=torch.uint8)
    curve = AblationCurve([1.0], None)
    return Report(
        title="title",
        version="1",
        max_length=8,
        seed=0,
        models=[ModelInfo("a", "DotProduct()", "best.ckpt")],
        examples=[ExampleReport("text 1", ["a", "b"], None, [model], pixels)],
        split=SplitReport("val", 1, [[]]),
        ablation=[AblationReport([0.0], curve, curve)],
        growth=[GrowthReport([1], [None])],
    )


def test_results_leave_out_what_only_the_page_needs() -> None:
    results = to_json(example_report())
    (example,) = results["examples"]
    assert set(example) == {"title", "words", "label", "models"}
    (model,) = example["models"]
    assert set(model) == {"prediction", "probability", "heads"}
    assert model["heads"] == [{"layer": "layer", "head": 0, "measures": {"mean_hops": None}, "spectrum": [1.0, 0.25]}]
    assert results["ablation"] == [
        {
            "p": [0.0],
            "edges": {"probability": [1.0], "accuracy": None},
            "nodes": {"probability": [1.0], "accuracy": None},
        }
    ]
    assert results["growth"] == [{"lengths": [1], "mean_hops": [None]}]
    assert results["split"] == {"name": "val", "count": 1, "models": [[]]}


def test_the_page_gets_encoded_matrices_and_images() -> None:
    (example,) = to_json(example_report(), page=True)["examples"]
    (model,) = example["models"]
    (head,) = model["heads"]
    weights = np.frombuffer(base64.b64decode(head["weights"]), "<f4").reshape(2, 2)
    assert weights.tolist() == WEIGHTS.tolist()
    assert np.frombuffer(base64.b64decode(head["parents"]), "<u2").tolist() == [NO_PARENT, 0, NO_PARENT, NO_PARENT]
    assert head["points"] is None
    assert "hops" not in head
    assert model["cross_attention"] == "data:image/png;base64," + base64.b64encode(b"png").decode()
    assert base64.b64decode(example["pixels"].partition(",")[2]).startswith(b"\x89PNG")


def test_a_summary_is_plain_json() -> None:
    assert to_json({"gap": Summary(0.5, math.inf, 3)}) == {"gap": {"mean": 0.5, "std": None, "count": 3}}
