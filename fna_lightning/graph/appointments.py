"""When to look whether an iteration has converged: looking costs more than a step."""

import math

FIRST = 12


class ConvergenceSchedule:
    """Looks that come closer together as the error falls towards its target.

    Between two looks the error fell at some rate, which grows as an iteration goes on; so the next look is half as far
    as that rate says.

    Args:
        target: the error to reach.
        least: steps between two looks, at least; about as many as cost what a look does.

    Attributes:
        next: the step to look at next.
    """

    def __init__(self, target: float, least: int) -> None:
        self.target = target
        self.least = least
        self.next = FIRST
        self._step, self._error = 0, 1.0

    def met(self, step: int, error: float) -> bool:
        """Note the error at ``step`` and return whether it is within the target."""
        if error <= self.target:
            self.next = step + self.least
            return True
        rate = math.log(self._error / error) / (step - self._step) if error < self._error else 0.0
        far = max(self.least, step // 3)
        half = math.log(error / self.target) / rate / 2 if rate else far
        self.next = step + int(min(max(half, self.least), far))
        self._step, self._error = step, error
        return False
