"""The definition of an attention with the full (n, m) matrix; every other kernel is tested against it."""

from torch import Tensor

from fna_lightning.attention.kernels.base import Call, Kernel
from fna_lightning.attention.kernels.formula import whole_output


class Reference(Kernel):
    """Computes the weight matrix and multiplies it with the values."""

    name = "reference"

    def run(self, call: Call) -> Tensor:
        return whole_output(call)
