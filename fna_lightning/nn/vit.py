"""The vision Transformer: an image cut into tokens, an encoder around any attention, a class."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from fna_lightning.nn.encoder import Encoder
from fna_lightning.nn.grid_positions import GridPositions
from fna_lightning.nn.patches import ImageTokens, Patches
from fna_lightning.nn.pooling import Pooling


class ViT(nn.Module):
    """Maps (B, C, S, S) images to (B, classes) logits.

    Args:
        encoder: mixes the tokens; pre-LN in the paper.
        num_classes: number of classes.
        channels: colours of an image.
        image_size: pixels of an image's side.
        tokens: makes the map from images to tokens from the colours and the width.
        positions: see ``GridPositions``.
        pooling: "cls" (one learned token more, which comes first), "mean", "max" or "attention".
        dropout: probability of dropping a coordinate of a token before the encoder.
    """

    def __init__(
        self,
        encoder: Encoder,
        num_classes: int,
        *,
        channels: int = 3,
        image_size: int = 32,
        tokens: Callable[[int, int], ImageTokens] = Patches,
        positions: str = "learned",
        pooling: str = "cls",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.tokens = tokens(channels, encoder.dim)
        self.image_size = image_size
        self.grid = self.tokens.grid(image_size)
        self.cls = nn.Parameter(torch.randn(encoder.dim) * 0.02) if pooling == "cls" else None
        self.positions = GridPositions(positions, self.grid, self.grid, encoder.dim, first=int(pooling == "cls"))
        self.dropout = nn.Dropout(dropout)
        self.pooling = Pooling(pooling, encoder.dim)
        self.head = nn.Linear(encoder.dim, num_classes)

    def forward(self, images: Tensor) -> Tensor:
        if images.shape[-2:] != (self.image_size, self.image_size):
            raise ValueError(
                f"this model reads images of {self.image_size} x {self.image_size} pixels, got "
                f"{images.size(-2)} x {images.size(-1)}; resize them, or train with another image_size"
            )
        x = self.tokens(images)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), 1, -1), x], dim=1)
        x = self.encoder(self.dropout(self.positions(x)))
        return self.head(self.pooling(x))
