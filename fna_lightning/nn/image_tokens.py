"""Modules that turn an image into a sequence of tokens."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fna_lightning.attention.linear import Linear
from fna_lightning.nn.patch_whitening import PatchWhitening


class ImageTokens(nn.Module, ABC):
    """Maps (B, C, H, W) images to (B, N, D) tokens, row by row of a grid."""

    @abstractmethod
    def grid(self, size: int) -> int:
        """Return the number of tokens along a side of ``size`` pixels; raise ValueError if they do not tile it."""


class Patches(ImageTokens):
    """Non-overlapping patches (Dosovitskiy et al., 2021, "An image is worth 16x16 words").

    Args:
        channels: number of color channels.
        dim: width of a token.
        patch: side of a patch in pixels.
    """

    def __init__(self, channels: int, dim: int, *, patch: int = 4) -> None:
        super().__init__()
        if patch < 1:
            raise ValueError(f"patch must be at least 1 pixel, got {patch}")
        self.patch = patch
        self.map = Linear(channels * patch * patch, dim)

    def grid(self, size: int) -> int:
        if size < 1 or size % self.patch:
            raise ValueError(
                f"patches of {self.patch} pixels do not tile an image of {size}; choose a patch that divides {size}, "
                f"or {_near_size(size, self.patch)}"
            )
        return size // self.patch

    def forward(self, images: Tensor) -> Tensor:
        # The same as a strided convolution, and several times faster on a CPU.
        batch, channels, height, width = images.shape
        rows, columns = self.grid(height), self.grid(width)
        patches = images.reshape(batch, channels, rows, self.patch, columns, self.patch)
        return self.map(patches.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1))


class ConvTokens(ImageTokens):
    """Convolutional tokenizer (Hassani et al., 2021, "Escaping the big data paradigm with compact transformers").

    3x3 convolutions, each with batch norm and ReLU; the last one has the width of a token.

    Args:
        channels: number of color channels.
        dim: width of a token.
        widths: channels of the convolutions before the last; empty for a single convolution.
        strides: stride of each convolution, one more than ``widths``; their product is the side of a token in pixels.
        pool: use max-pooling after the convolution instead of a strided convolution; slower and more accurate.
        whiten: make the first layer a ``PatchWhitening``, which is set from training images and is not trained.
    """

    def __init__(
        self,
        channels: int,
        dim: int,
        *,
        widths: Sequence[int] = (32, 64),
        strides: Sequence[int] = (2, 1, 2),
        pool: bool = False,
        whiten: bool = False,
    ) -> None:
        super().__init__()
        if len(strides) != len(widths) + 1 or min(strides) < 1:
            raise ValueError(
                f"strides must be {len(widths) + 1} positive numbers, one for each of widths {list(widths)} and one "
                f"for the token, got {list(strides)}"
            )
        self.stride = math.prod(strides)
        layers = list(zip([channels, *widths], [*widths, dim], strides, strict=True))
        blocks: list[nn.Module] = []
        if whiten:
            blocks.append(PatchWhitening(*layers.pop(0)))
        for in_channels, out_channels, stride in layers:
            blocks += _convolution(in_channels, out_channels, stride, pool=pool and stride > 1)
        self.blocks = nn.Sequential(*blocks)

    def grid(self, size: int) -> int:
        if size < 1 or size % self.stride:
            raise ValueError(
                f"tokens of {self.stride} pixels do not tile an image of {size}; choose strides whose product divides "
                f"{size}, or {_near_size(size, self.stride)}"
            )
        return size // self.stride

    def forward(self, images: Tensor) -> Tensor:
        # Channels-last convolutions are the fastest on a CPU, and the tokens have this layout anyway.
        maps = self.blocks(images.contiguous(memory_format=torch.channels_last))  # (B, D, h, w)
        return maps.flatten(2).mT


def _convolution(in_channels: int, out_channels: int, stride: int, *, pool: bool) -> list[nn.Module]:
    """Return a 3x3 convolution with batch norm and ReLU; with ``pool``, max-pooling instead of the stride."""
    return [
        nn.Conv2d(in_channels, out_channels, 3, 1 if pool else stride, padding=1, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        *([nn.MaxPool2d(stride)] if pool else []),
    ]


def _near_size(size: int, token: int) -> str:
    """Return an image size near ``size`` that tokens of ``token`` pixels tile, for error messages."""
    return f"an image size that is a multiple of {token}, such as {max(token, round(size / token) * token)}"
