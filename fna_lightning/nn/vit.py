"""Vision Transformer with any attention."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from fna_lightning.attention import Attention
from fna_lightning.nn.encoder import Encoder, EncoderConfig
from fna_lightning.nn.image_tokens import ImageTokens, Patches
from fna_lightning.nn.pooling import Pooling
from fna_lightning.nn.positions import GridPositions


class ViT(nn.Module):
    """Maps (B, C, S, S) images to (B, classes) logits.

    Args:
        encoder: the encoder; pre-LN in the paper.
        num_classes: number of classes.
        channels: number of color channels.
        image_size: side of an image in pixels.
        tokens: builds the module that maps images to tokens from ``(channels, dim)``.
        positions: see ``GridPositions``.
        pooling: "cls" (a learned token before all others), "mean", "max" or "attention".
        dropout: dropout probability of the tokens before the encoder.
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
                f"this model takes images of {self.image_size} x {self.image_size} pixels, got "
                f"{images.size(-2)} x {images.size(-1)}; resize them, or train with another image_size"
            )
        x = self.tokens(images)
        if self.cls is not None:
            x = torch.cat([self.cls.expand(len(x), 1, -1), x], dim=1)
        x = self.encoder(self.dropout(self.positions(x)))
        return self.head(self.pooling(x))


@dataclass(frozen=True)
class ViTConfig:
    """Settings of a ``ViT``. Builds it when called.

    Args:
        encoder: settings of the encoder.
        tokens: builds the module that maps images to tokens from ``(channels, dim)``.
        positions: "learned", "sinusoidal" or "none", on the grid of tokens.
        pooling: "cls", "mean", "max" or "attention".
        dropout: dropout probability of the tokens before the encoder.
    """

    encoder: EncoderConfig = EncoderConfig()  # noqa: RUF009 - frozen
    tokens: Callable[[int, int], ImageTokens] = Patches
    positions: str = "learned"
    pooling: str = "cls"
    dropout: float = 0.0

    def __call__(self, num_classes: int, channels: int, image_size: int, attention: Attention) -> ViT:
        """Build the network."""
        return ViT(
            self.encoder(attention),
            num_classes,
            channels=channels,
            image_size=image_size,
            tokens=self.tokens,
            positions=self.positions,
            pooling=self.pooling,
            dropout=self.dropout,
        )
