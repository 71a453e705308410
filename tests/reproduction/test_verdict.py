"""Verdicts on both sides of every limit."""

import math

import pytest

from fna_lightning.reproduction.artifact import Claim, Result, Row, Table
from fna_lightning.reproduction.verdict import difference, verdict


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (Row("a", 83.0, 83.2, tolerance=0.3), "reproduced"),
        (Row("a", 82.8, 83.2, tolerance=0.3), "differs"),
        (Row("a", 82.8, 83.2, half_width=0.2, seeds=3, tolerance=0.3), "reproduced"),
        (Row("a", 0.97, (0.88, 0.98)), "reproduced"),
        (Row("a", 0.99, (0.88, 0.98)), "differs"),
        (Row("a", 83.2, 83.2, seeds=1), "not comparable"),
        (Row("a", 83.2, 83.2, half_width=0.1, seeds=3, comparable=False), "not comparable"),
        (Row("a", 83.2), "not comparable"),
        (Row("a", None, 83.2, reason="failed"), "not run"),
        (Row("a", math.nan, 83.2), "not run"),
        (Row("a", 1.19, 1.16, tolerance=0.03), "reproduced"),
        (Row("a", 1.1901, 1.16, tolerance=0.03), "differs"),
        (Claim("a", 2.0, 1.9, 3), "reproduced"),
        (Claim("a", 2.0, 2.0, 3), "differs"),
        (Claim("a", -2.0, 0.1, 3), "differs"),
        (Claim("a", 2.0, None, 1), "not comparable"),
        (Claim("a", 2.0, 0.1, 3, comparable=False), "not comparable"),
        (Claim("a"), "not run"),
    ],
)
def test_verdict(entry, expected) -> None:
    assert verdict(entry) == expected


def test_difference_to_a_range_is_measured_from_its_nearer_end() -> None:
    assert difference(Row("a", 5.0, (1.0, 3.0))) == 2.0
    assert difference(Row("a", 0.0, (1.0, 3.0))) == -1.0
    assert difference(Row("a", 2.0, (1.0, 3.0))) == 0.0


def test_result_round_trip() -> None:
    result = Result([Row("a", 1.0, (0.0, 2.0))], [Claim("b", 1.0)], [Table("t", ["x"], [["1"]])], {"f.png": "c"}, ["n"])
    assert Result.from_dict(result.to_dict()) == result
