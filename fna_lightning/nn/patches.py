"""An image as a sequence of tokens: each square patch through one linear map."""

from abc import ABC, abstractmethod

from torch import Tensor, nn


class ImageTokens(nn.Module, ABC):
    """Maps (B, C, H, W) images to (B, N, D) tokens, row by row of a grid."""

    @abstractmethod
    def grid(self, size: int) -> int:
        """Return how many tokens a side of ``size`` pixels becomes; a size that does not fit is refused."""


class Patches(ImageTokens):
    """Non-overlapping patches (Dosovitskiy et al., 2021, "An image is worth 16x16 words").

    Args:
        channels: colours of the image.
        dim: width of a token.
        patch: pixels of a patch's side.
    """

    def __init__(self, channels: int, dim: int, *, patch: int = 4) -> None:
        super().__init__()
        if patch < 1:
            raise ValueError(f"patch must be at least 1 pixel, got {patch}")
        self.patch = patch
        self.map = nn.Linear(channels * patch * patch, dim)

    def grid(self, size: int) -> int:
        if size < 1 or size % self.patch:
            raise ValueError(
                f"patches of {self.patch} pixels do not tile an image of {size}; choose a patch that divides {size}"
            )
        return size // self.patch

    def forward(self, images: Tensor) -> Tensor:
        # a linear map of cut-out patches: the same as a strided convolution, and several times faster on a CPU
        batch, channels, height, width = images.shape
        rows, columns = self.grid(height), self.grid(width)
        cut = images.reshape(batch, channels, rows, self.patch, columns, self.patch)
        return self.map(cut.permute(0, 2, 4, 1, 3, 5).reshape(batch, rows * columns, -1))
