"""An image as a sequence of tokens: a few small convolutions, so that a token knows its surroundings."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from fna_lightning.nn.patches import ImageTokens


class ConvTokens(ImageTokens):
    """A convolutional tokeniser (Hassani et al., 2021, "Escaping the big data paradigm with compact transformers").

    3x3 convolutions, each with batch norm and ReLU; the last one has the width of a token.

    Args:
        channels: colours of the image.
        dim: width of a token.
        widths: channels of the convolutions before the last; empty for a single one.
        strides: step of each convolution, one more than ``widths``; their product is the pixels of a token's side.
        pool: whether a step of 2 is taken by max-pooling after the convolution instead of by the convolution itself:
            slower and better.
    """

    def __init__(
        self,
        channels: int,
        dim: int,
        *,
        widths: Sequence[int] = (32, 64),
        strides: Sequence[int] = (2, 1, 2),
        pool: bool = False,
    ) -> None:
        super().__init__()
        if len(strides) != len(widths) + 1 or min(strides) < 1:
            raise ValueError(
                f"strides must be {len(widths) + 1} positive steps, one for each of widths {list(widths)} and one for "
                f"the token, got {list(strides)}"
            )
        self.step = 1
        blocks: list[nn.Module] = []
        for before, after, stride in zip([channels, *widths], [*widths, dim], strides, strict=True):
            self.step *= stride
            pooled = pool and stride > 1
            blocks += [
                nn.Conv2d(before, after, 3, 1 if pooled else stride, padding=1, bias=False),
                nn.BatchNorm2d(after),
                nn.ReLU(inplace=True),
            ]
            if pooled:
                blocks.append(nn.MaxPool2d(stride))
        self.blocks = nn.Sequential(*blocks)

    def grid(self, size: int) -> int:
        if size < 1 or size % self.step:
            raise ValueError(
                f"steps of {self.step} pixels do not tile an image of {size}; choose strides whose product divides it"
            )
        return size // self.step

    def forward(self, images: Tensor) -> Tensor:
        # channels last is how a CPU convolves fastest, and how the tokens leave anyway
        maps = self.blocks(images.contiguous(memory_format=torch.channels_last))  # (B, D, h, w)
        return maps.flatten(2).mT
