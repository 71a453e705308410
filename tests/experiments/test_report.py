"""The table of a sweep."""

import io
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from fna_lightning.experiments.report import limited_tests, print_table
from fna_lightning.experiments.seeds import summarize


def test_a_limited_test_is_named() -> None:
    whole: Any = SimpleNamespace(label="reviews_dp")
    part: Any = SimpleNamespace(label="reviews_fna")
    limited = {"test": {"evaluated": 16, "total": 32, "unit": "examples"}}
    # SimpleNamespace has no hash, so the cells are wrapped in a mapping with items only
    results: Any = SimpleNamespace(
        items=lambda: [(whole, {"test": {"metrics": {}}}), (part, {"test": {"metrics": {}, "limited": limited}})]
    )
    assert limited_tests(results) == {"reviews_fna": "on 16 of 32 examples (limit_test_batches)"}


def test_the_time_is_that_of_one_run() -> None:
    console = Console(file=io.StringIO(), width=140)
    print_table("test/accuracy", {"reviews_fna": summarize([0.5, 0.6, 0.7])}, {}, {"reviews_fna": 180.0}, console)
    printed = console.file.getvalue()  # type: ignore[attr-defined]
    assert "train s a run" in printed
    assert " 60 " in printed
    assert "180" not in printed
