"""An attention whose kernel is a function of a distance alone, in the numbers a fused kernel needs."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Radial:
    """log C = -exponent * log(1 + r / kappa), or -(r / kappa)^2 if ``gaussian``.

    Args:
        gaussian: which of the two profiles.
        sphere: whether r is the angle between q and k rather than |q - k|.
        kappa: the distance scale; a tensor has one value a head and may ask for its gradient.
        exponent: d_M + alpha, as ``kappa``; unused by the Gaussian.
    """

    gaussian: bool
    sphere: bool
    kappa: float | Tensor
    exponent: float | Tensor
