"""The metric that a sweep compares."""

from collections.abc import Iterable
from typing import Any

LOSS = "test/loss"
# in the order in which they are looked for
METRICS = ("test/accuracy", "test/bleu", LOSS)


def default_metric(results: Iterable[dict[str, Any]]) -> str:
    """Return the first of ``METRICS`` that is in all of these contents of results.json, or the first if none is."""
    found = [stages["test"]["metrics"] for stages in results]
    return next((name for name in METRICS if all(name in metrics for metrics in found)), METRICS[0])
