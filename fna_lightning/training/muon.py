"""Muon for the matrices of a network, AdamW for its other parameters."""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer
from torch.optim.adamw import adamw

# Odd polynomial a x + b x^3 + c x^5. Applied five times, it maps singular values in (0, 1] to values near 1.
COEFFICIENTS = (3.4445, -4.7750, 2.0315)
ITERATIONS = 5


class MuonAdamW(Optimizer):
    """Muon (Jordan et al., 2024) for matrices and filters of convolutions, AdamW for vectors and large tables.

    The step of a matrix is its momentum with all singular values replaced by about 1. ``torch.optim.Muon`` takes
    matrices only, and computes in bfloat16, which is slow on most CPUs; here it is float32.

    Args:
        params: all parameters.
        lr: learning rate of matrices. A step changes the root mean square of a square matrix of width d by ``lr`` /
            sqrt(d).
        adam_lr: learning rate of the other parameters. A schedule multiplies both rates by the same factor.
        largest: largest number of rows of a matrix; those with more, such as tables of token vectors, follow AdamW.
        momentum: momentum of matrices, of Nesterov's kind.
        weight_decay: decoupled weight decay of matrices; the other parameters have none.
        betas: coefficients of the running means of AdamW.
        eps: added to the denominator of AdamW.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float = 0.02,
        *,
        adam_lr: float = 2e-3,
        largest: int = 2048,
        momentum: float = 0.95,
        weight_decay: float = 0.0,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
    ) -> None:
        for name, value in (("lr", lr), ("adam_lr", adam_lr), ("weight_decay", weight_decay)):
            if not value >= 0.0:
                raise ValueError(f"{name} must not be negative, got {value}")
        if not 0.0 <= momentum < 1.0:
            raise ValueError(f"momentum must lie in [0, 1), got {momentum}")
        given = list(params)
        matrices = [param for param in given if param.ndim >= 2 and len(param) <= largest]
        others = [param for param in given if param.ndim < 2 or len(param) > largest]
        groups: list[dict[str, Any]] = [
            {"params": matrices, "lr": lr, "momentum": momentum, "weight_decay": weight_decay, "matrices": True},
            {"params": others, "lr": adam_lr, "betas": tuple(betas), "eps": eps, "matrices": False},
        ]
        super().__init__([group for group in groups if group["params"]], {"lr": lr})

    @overload
    def step(self, closure: None = None) -> None: ...

    @overload
    def step(self, closure: Callable[[], float]) -> float: ...

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Update all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [(param, param.grad) for param in group["params"] if param.grad is not None]
            if group["matrices"]:
                for param, gradient in params:
                    self._step_matrix(param, gradient, group)
            elif params:
                self._step_adamw(params, group)
        return loss

    def _step_matrix(self, param: Tensor, gradient: Tensor, group: dict[str, Any]) -> None:
        state = self.state[param]
        if not state:
            state["momentum"] = torch.zeros_like(param)
        state["momentum"].lerp_(gradient, 1.0 - group["momentum"])
        update = orthogonalized(gradient.lerp(state["momentum"], group["momentum"]).flatten(1))
        rows, columns = update.shape
        param.mul_(1.0 - group["lr"] * group["weight_decay"])
        param.add_(update.view_as(param), alpha=-group["lr"] * max(1.0, rows / columns) ** 0.5)

    def _step_adamw(self, params: list[tuple[Tensor, Tensor]], group: dict[str, Any]) -> None:
        for param, _ in params:
            if not self.state[param]:
                zeros = {"exp_avg": torch.zeros_like(param), "exp_avg_sq": torch.zeros_like(param)}
                self.state[param] |= {"step": torch.zeros((), device=param.device), **zeros}
        states = [self.state[param] for param, _ in params]
        adamw(
            [param for param, _ in params],
            [gradient for _, gradient in params],
            [state["exp_avg"] for state in states],
            [state["exp_avg_sq"] for state in states],
            [],
            [state["step"] for state in states],
            fused=True,
            amsgrad=False,
            beta1=group["betas"][0],
            beta2=group["betas"][1],
            lr=group["lr"],
            weight_decay=0.0,
            eps=group["eps"],
            maximize=False,
        )


def orthogonalized(matrix: Tensor) -> Tensor:
    """Return a matrix with the singular vectors of ``matrix`` and singular values of about 1 (0.7 to 1.2)."""
    a, b, c = COEFFICIENTS
    x = matrix / matrix.norm().clamp(min=1e-7)
    wide = x if x.size(0) <= x.size(1) else x.mT
    for _ in range(ITERATIONS):
        gram = wide @ wide.mT
        wide = torch.addmm(wide, torch.addmm(gram, gram, gram, beta=b, alpha=c), wide, beta=a)
    return wide if x.size(0) <= x.size(1) else wide.mT
