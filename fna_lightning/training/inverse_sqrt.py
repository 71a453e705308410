"""The learning rate of the Transformer: up in a line, down as one over the root of the steps."""

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LambdaLR


class InverseSqrt(LambdaLR):
    """Rises to the optimiser's rate in ``warmup`` steps, then falls as 1 / sqrt(step) (Vaswani et al., 2017).

    A short training gains most from its last, small steps: given the length of the training, the rate goes down to 0
    in a line over the last part of it.

    Args:
        optimizer: its rate is the highest one.
        warmup: steps of the rise.
        total: steps of the whole training; None never goes to 0.
        cooldown: share of ``total`` over which the rate goes to 0.
    """

    def __init__(
        self, optimizer: Optimizer, warmup: int = 1000, total: int | None = None, cooldown: float = 0.3
    ) -> None:
        if warmup < 1:
            raise ValueError(f"warmup must be at least 1 step, got {warmup}")
        if total is not None and total <= warmup:
            raise ValueError(f"total must be more than the {warmup} steps of the warm-up, got {total}")
        if not 0.0 < cooldown <= 1.0:
            raise ValueError(f"cooldown must lie in (0, 1], got {cooldown}")

        def rate(step: int) -> float:
            step += 1
            usual = min(step / warmup, (warmup / step) ** 0.5)
            if total is None:
                return usual
            return usual * min(1.0, max(0.0, (total + 1 - step) / (cooldown * total)))

        super().__init__(optimizer, rate)
