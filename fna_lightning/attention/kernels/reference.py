"""The definition, written out: the whole (n, m) matrix is built. Every other kernel is tested against it."""

from torch import Tensor

from fna_lightning.attention.kernels.base import Call, Kernel


class Reference(Kernel):
    """Builds the weights and multiplies the values by them."""

    name = "reference"

    def run(self, call: Call) -> Tensor:
        attention, q, k = call.attention, call.q, call.k
        return attention.weighted_mean(q, k, call.v, call.seen, attention.log_density(q, k, call.seen), call.dropout)
