"""IntervalTimer."""

import pytest

from fna_lightning.training import timer
from fna_lightning.training.timer import IntervalTimer


def test_it_is_due_after_its_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = 100.0
    monkeypatch.setattr(timer.time, "monotonic", lambda: seconds)
    interval = IntervalTimer(minutes=2.0)
    seconds += 119.0
    assert not interval.is_due
    seconds += 2.0
    assert interval.is_due
    interval.restart()
    assert not interval.is_due


@pytest.mark.parametrize("minutes", [0.0, -1.0, float("nan")])
def test_the_interval_must_be_positive(minutes: float) -> None:
    with pytest.raises(ValueError, match=f"minutes must be positive, got {minutes}"):
        IntervalTimer(minutes)
