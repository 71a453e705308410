"""What the layers of encoder and decoder share: how a sublayer is wrapped."""

from collections.abc import Callable

from torch import Tensor, nn

from fna_lightning.attention.distance import unit
from fna_lightning.nn.dropout import Dropout


class ResidualLayer(nn.Module):
    """Sublayers, each with its residual and layer norm.

    Args:
        pre_norm: normalise what enters a sublayer (pre-LN) instead of what leaves its residual (post-LN).
        dropout: probability of dropping a coordinate of a sublayer's result.
        on_sphere: whether the tokens that enter an attention are normalised to length 1.
    """

    def __init__(self, *, pre_norm: bool, dropout: float, on_sphere: bool) -> None:
        super().__init__()
        self.pre_norm = pre_norm
        self.on_sphere = on_sphere
        self.dropout = Dropout(dropout)

    def _residual(self, norm: nn.Module, x: Tensor, sublayer: Callable[[Tensor], Tensor]) -> Tensor:
        if self.pre_norm:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))

    def _asking(self, x: Tensor) -> Tensor:
        return unit(x) if self.on_sphere else x
