"""The tables and notes that `analyze` prints."""

from dataclasses import replace

import pytest

from fna_lightning.analysis.report import (
    ExampleReport,
    HeadReport,
    HeadSummary,
    ModelInfo,
    ModelReport,
    Report,
    SplitReport,
    Summary,
)
from fna_lightning.analysis.tables import report_tables
from fna_lightning.graph import MEASURES
from fna_lightning.utils.console import wide_console

LAYERS = {f"encoder.layers.{number}.self_attn": f"layer {number + 1}" for number in range(2)}


def example_report(**changes: object) -> Report:
    """Return a report of a model of two layers with two heads, of which one is near uniform."""
    entropies = {(layer, head): 0.5 for layer in LAYERS for head in (0, 1)}
    entropies["encoder.layers.1.self_attn", 0] = 0.99
    heads = [
        HeadReport(layer, head, dict.fromkeys(MEASURES, 0.25) | {"entropy": value})
        for (layer, head), value in entropies.items()
    ]
    # the mean over heads is not one of the heads
    heads.append(HeadReport("encoder.layers.1.self_attn", -1, dict.fromkeys(MEASURES, 1.0)))
    example = ExampleReport("text 1", ["a"], "good", [ModelReport("bad", 0.75, False, {"bad": 0.75}, heads)])
    report = Report(
        title="",
        kind="text",
        unit="texts",
        version="1",
        max_length=8,
        seed=0,
        models=[ModelInfo("model", "", "", LAYERS)],
        examples=[example],
        split=None,
        ablation=[],
        lengths=[],
    )
    return replace(report, **changes)


def printed(report: Report) -> str:
    console = wide_console()
    with console.capture() as capture:
        for part in report_tables(report):
            console.print(part, highlight=False)
    return capture.get()


def test_layers_have_readable_names_and_their_own_means() -> None:
    output = printed(example_report())
    assert "mean over text 1 and over all heads" in output
    assert "4 heads in 2 layers" in output
    (header,) = (line for line in output.splitlines() if "layer 1" in line and "layer 2" in line and "head" in line)
    assert "encoder" not in header
    (row,) = (line for line in output.splitlines() if line.startswith("│ entropy"))
    assert [float(cell) for cell in row.split("│")[2:-1]] == [0.6225, 0.5, 0.745]


def test_near_uniform_heads_are_pointed_out() -> None:
    note = "model: 1 of 4 heads near uniform (entropy > 0.98: layer 2 head 0); a large gap here only means averaging"
    assert note in printed(example_report())


def test_predictions_are_marked() -> None:
    output = printed(example_report())
    assert "bad 0.7500 (wrong)" in output
    assert "model: 0 of 1 predictions are right" in output


def test_values_that_are_not_finite_and_truncated_texts_are_mentioned() -> None:
    report = example_report()
    (example,) = report.examples
    measures = {name: Summary(0.5, 0.0, 2) for name in MEASURES} | {"mean_hops": Summary(1.0, 0.0, 1)}
    split = SplitReport("val", 2, [[HeadSummary("encoder.layers.0.self_attn", 0, measures)]])
    output = printed(replace(report, split=split, examples=[example, replace(example, truncated=True)]))
    assert "mean over 2 texts spread evenly over the split 'val' and over all heads" in output
    assert "model: mean_hops is the mean over 1 of 2 values; the rest are infinite" in output
    assert "1 of 2 examples are longer than 8 tokens and were truncated; a larger --max-length studies them" in output


@pytest.mark.parametrize("kind", ["batch", "text"])
def test_models_without_predictions_have_no_such_table(kind: str) -> None:
    report = example_report()
    (example,) = report.examples
    model = replace(example.models[0], prediction="", correct=None)
    assert "predictions" not in printed(replace(report, kind=kind, examples=[replace(example, models=[model])]))
