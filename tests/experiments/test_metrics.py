"""The metric that a sweep compares if none is named."""

import pytest

from fna_lightning.experiments.metrics import default_metric


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ([["test/loss", "test/accuracy"]], "test/accuracy"),
        ([["test/loss", "test/bleu"]], "test/bleu"),
        ([["test/loss", "test/mse"]], "test/loss"),
        ([["test/loss", "test/accuracy"], ["test/loss", "test/bleu"]], "test/loss"),
        ([["test/mine"]], "test/accuracy"),
    ],
)
def test_the_first_metric_that_all_runs_have(runs: list[list[str]], expected: str) -> None:
    assert default_metric([{"test": {"metrics": dict.fromkeys(names, 0.5)}} for names in runs]) == expected
