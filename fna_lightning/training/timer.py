"""A timer for work that is repeated at a minimum interval."""

import time


class IntervalTimer:
    """Reports when a number of minutes has passed since the last restart.

    Args:
        minutes: length of the interval.
    """

    def __init__(self, minutes: float) -> None:
        if not minutes > 0.0:
            raise ValueError(f"minutes must be positive, got {minutes}; 10 writes a checkpoint every ten minutes")
        self.minutes = minutes
        self._started = time.monotonic()

    def restart(self) -> None:
        """Begin a new interval."""
        self._started = time.monotonic()

    @property
    def is_due(self) -> bool:
        """Whether the interval is over."""
        return time.monotonic() - self._started > 60 * self.minutes
