"""The definition of an attention with the full (n, m) matrix; every other kernel is tested against it."""

from torch import Tensor

from fna_lightning.attention.kernels.base import Call, Kernel


class Reference(Kernel):
    """Computes the weight matrix and multiplies it with the values."""

    name = "reference"

    def run(self, call: Call) -> Tensor:
        attention, q, k = call.attention, call.q, call.k
        return attention.weighted_mean(q, k, call.v, call.mask, attention.log_density(q, k, call.mask), call.dropout)
