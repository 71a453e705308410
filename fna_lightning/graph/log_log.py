"""Slopes of power laws: least-squares fits on logarithmic axes."""

import torch
from torch import Tensor


def fit_slope(x: Tensor, y: Tensor) -> float:
    """Return the least-squares slope of log(y) against log(x), both of shape (n,) with positive values."""
    x, y = x.double().log(), y.double().log()
    x = x - x.mean()
    return ((x @ y) / (x @ x)).item()


def log_log_slope(values: Tensor, first: int, last: int) -> float:
    """Return the least-squares slope of log(values[first:last]) against the logarithm of their ranks.

    Ranks count from 1, as in Weyl's law: the rank of lambda is the number of eigenvalues up to it, and lambda_0 = 0 of
    the constant function has rank 1.
    """
    if not 1 <= first < last - 1 < len(values):
        raise ValueError(
            f"the window [first, last) must hold at least two of the {len(values)} values and not the first, "
            f"got [{first}, {last})"
        )
    return fit_slope(torch.arange(first + 1, last + 1), values[first:last])
