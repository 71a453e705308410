"""Learning-rate schedules that move every step and take the length of training from the trainer."""

import math
from abc import abstractmethod
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


class StepwiseLR(LambdaLR):
    """Base class of schedules that depend on the number of optimizer steps of the training.

    ``Task`` calls ``set_total_steps``. The number is not saved in checkpoints: a run that is resumed with more epochs
    follows the schedule of the longer training.

    Args:
        optimizer: the optimizer; its learning rate is the peak of the schedule.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.total_steps: float = math.inf
        super().__init__(optimizer, self.factor)

    @abstractmethod
    def factor(self, step: int) -> float:
        """Return the learning rate at a step, relative to the peak."""

    def set_total_steps(self, total_steps: float) -> None:
        """Set the number of steps of the whole training and update the learning rate of the current step.

        Args:
            total_steps: infinity if the trainer has no limit.
        """
        self.total_steps = total_steps
        self._update_rates()

    def state_dict(self) -> dict[str, Any]:
        state = super().state_dict()
        del state["total_steps"]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        super().load_state_dict(state_dict)
        # The rates in the checkpoint are those of the training that saved it, which may have been shorter.
        self._update_rates()

    def _update_rates(self) -> None:
        self._last_lr = [base * self.factor(self.last_epoch) for base in self.base_lrs]
        for group, rate in zip(self.optimizer.param_groups, self._last_lr, strict=True):
            group["lr"] = rate


class WarmupCosine(StepwiseLR):
    """Linear warm-up to the learning rate of the optimizer, then cosine decay.

    Args:
        optimizer: the optimizer; its learning rate is the peak of the schedule.
        warmup: fraction of all steps in which the rate rises.
        floor: last rate, as a fraction of the peak.
    """

    def __init__(self, optimizer: Optimizer, warmup: float = 0.1, floor: float = 0.0) -> None:
        if not 0.0 <= warmup < 1.0:
            raise ValueError(f"warmup must be a fraction of all steps in [0, 1), got {warmup}")
        if not 0.0 <= floor <= 1.0:
            raise ValueError(f"floor must be a fraction of the peak rate in [0, 1], got {floor}")
        self.warmup = warmup
        self.floor = floor
        super().__init__(optimizer)

    def factor(self, step: int) -> float:
        if math.isinf(self.total_steps):
            return 1.0
        rising = self.warmup * self.total_steps
        if step < rising:
            return (step + 1) / (rising + 1)
        done = min(1.0, (step - rising) / max(1.0, self.total_steps - rising))
        return self.floor + (1.0 - self.floor) * 0.5 * (1.0 + math.cos(math.pi * done))

    def set_total_steps(self, total_steps: float) -> None:
        if math.isinf(total_steps):
            raise ValueError("WarmupCosine needs the length of the training; set trainer.max_epochs or max_steps")
        super().set_total_steps(total_steps)


class InverseSqrt(StepwiseLR):
    """Linear warm-up, then decay as 1 / sqrt(step) (Vaswani et al., 2017), with an optional linear cool-down to 0.

    Short trainings gain most from a cool-down.

    Args:
        optimizer: the optimizer; its learning rate is the peak of the schedule.
        warmup: number of warm-up steps.
        cooldown: fraction of all steps, at the end of the training, in which the rate goes to 0; 0 for no cool-down.
    """

    def __init__(self, optimizer: Optimizer, warmup: int = 1000, cooldown: float = 0.0) -> None:
        if warmup < 1:
            raise ValueError(f"warmup must be at least 1 step, got {warmup}")
        if not 0.0 <= cooldown <= 1.0:
            raise ValueError(f"cooldown must be a fraction of all steps in [0, 1], got {cooldown}")
        self.warmup = warmup
        self.cooldown = cooldown
        super().__init__(optimizer)

    def factor(self, step: int) -> float:
        step += 1
        rate = min(step / self.warmup, (self.warmup / step) ** 0.5)
        if not self.cooldown or math.isinf(self.total_steps):
            return rate
        return rate * min(1.0, max(0.0, (self.total_steps + 1 - step) / (self.cooldown * self.total_steps)))

    def set_total_steps(self, total_steps: float) -> None:
        if self.cooldown and math.isinf(total_steps):
            raise ValueError(
                "InverseSqrt with a cool-down needs the length of the training; set trainer.max_epochs or max_steps, "
                "or cooldown to 0"
            )
        super().set_total_steps(total_steps)
