"""A fixed first layer of image networks: whitened patches."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

# Smallest variance of a component relative to the largest; weaker ones are noise of the image compression.
SMALLEST_VARIANCE = 1e-4


class PatchWhitening(nn.Module):
    """Convolution whose outputs on training patches are uncorrelated with variance 1, followed by ReLU of both signs.

    The filters are the leading eigenvectors of the covariance of training patches, each divided by the standard
    deviation of its component. They are buffers: they are saved in checkpoints and are not trained. Until ``fit`` is
    called, they are random.

    Args:
        channels: number of color channels.
        out_channels: number of outputs, two for each component.
        stride: stride of the convolution; a patch has a margin of one pixel around ``stride`` pixels.
    """

    weight: Tensor
    bias: Tensor
    fitted: Tensor

    def __init__(self, channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        side = stride + 2
        largest = 2 * channels * side**2
        if out_channels % 2 or not 2 <= out_channels <= largest:
            raise ValueError(
                f"whitened patches of {side} x {side} pixels have two outputs for each of at most {largest // 2} "
                f"components, got {out_channels} outputs; choose an even number up to {largest}"
            )
        self.stride = stride
        components = out_channels // 2
        scale = (channels * side**2) ** -0.5
        self.register_buffer("weight", torch.randn(components, channels, side, side) * scale)
        self.register_buffer("bias", torch.zeros(components))
        self.register_buffer("fitted", torch.tensor(False))

    @torch.no_grad()
    def fit(self, images: Tensor) -> None:
        """Set the filters from (B, C, H, W) training images, scaled as in training."""
        side = self.weight.size(-1)
        patches = F.unfold(images.double(), side, stride=self.stride).mT.flatten(0, 1)  # (patches, C * side^2)
        mean = patches.mean(dim=0)
        variances, vectors = torch.linalg.eigh((patches - mean).T.cov(correction=0))
        variances, vectors = variances.flip(0)[: len(self.bias)], vectors.flip(1)[:, : len(self.bias)]
        filters = vectors.T / variances.clamp(min=SMALLEST_VARIANCE * variances[0]).sqrt()[:, None]
        self.weight.copy_(filters.reshape(self.weight.shape))
        self.bias.copy_(-filters @ mean)
        self.fitted.fill_(True)

    def whiten(self, images: Tensor) -> Tensor:
        """Return the components of all patches; patches at the border are padded with 0."""
        return F.conv2d(images, self.weight, self.bias, self.stride, padding=1)

    def forward(self, images: Tensor) -> Tensor:
        components = self.whiten(images)
        return torch.cat([components, -components], dim=1).relu_()
