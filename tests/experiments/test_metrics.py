"""The metric that a sweep compares if none is named."""

import argparse

import pytest

from fna_lightning.commands.sweep import add_arguments, command_line
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


def test_the_command_of_a_report_says_that_lower_is_better() -> None:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    args = parser.parse_args(["--config", "terrain_fna.yaml"])
    words = "fna-lightning sweep --config terrain_fna.yaml --seeds 1 --metric"
    assert command_line(args, "test/loss", True) == f"{words} test/loss --lower-is-better"
    assert command_line(args, "test/bleu", False) == f"{words} test/bleu"
