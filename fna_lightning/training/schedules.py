"""Learning-rate schedules that know how long the training is."""

import math

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


class WarmupCosine(LambdaLR):
    """A straight rise to the optimiser's rate, then half a cosine down to nothing; moves every step.

    A ``Task`` tells it how many steps the training has, so that a longer or shorter one needs no other number.

    Args:
        optimizer: whose rate it moves.
        warmup: share of all steps in which the rate rises.
        floor: last rate, as a share of the highest.
    """

    def __init__(self, optimizer: Optimizer, warmup: float = 0.1, floor: float = 0.0) -> None:
        if not 0.0 <= warmup < 1.0:
            raise ValueError(f"warmup must be a share of all steps in [0, 1), got {warmup}")
        if not 0.0 <= floor <= 1.0:
            raise ValueError(f"floor must be a share of the highest rate in [0, 1], got {floor}")
        self.warmup = warmup
        self.floor = floor
        self.total_steps = 1
        super().__init__(optimizer, self.factor)

    def factor(self, step: int) -> float:
        """Return the share of the highest rate at a step."""
        rising = self.warmup * self.total_steps
        if step < rising:
            return (step + 1) / (rising + 1)
        done = min(1.0, (step - rising) / max(1.0, self.total_steps - rising))
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * done))

    def set_total_steps(self, total_steps: int) -> None:
        """Learn how many steps there are; the rate of the step at hand follows."""
        self.total_steps = total_steps
        for group, base in zip(self.optimizer.param_groups, self.base_lrs, strict=True):
            group["lr"] = base * self.factor(self.last_epoch)
