"""Training on two images at once: their labels are shares of two classes."""

import torch
from torch import Tensor
from torch.nn import functional as F

from fna_lightning.tasks.image.augmentation import Augmentation


class Mixing(Augmentation):
    """Mixes each image of a batch with another one of it.

    Args:
        num_classes: number of classes.
        strength: of the beta distribution the share is drawn from, one share a batch; 1 is uniform.
    """

    def __init__(self, num_classes: int = 10, strength: float = 1.0) -> None:
        if not strength > 0.0:
            raise ValueError(f"strength must be positive, got {strength}; leave the augmentation out to do nothing")
        self.num_classes = num_classes
        self.strength = strength

    def draw(self) -> float:
        """Return the share of an image that stays."""
        return torch.distributions.Beta(self.strength, self.strength).sample().item()

    def mixed(self, labels: Tensor, kept: float) -> Tensor:
        """Return (B, classes) shares of labels that are numbers, or shares already."""
        if labels.ndim == 1:
            labels = F.one_hot(labels, self.num_classes)
        return kept * labels + (1.0 - kept) * labels.roll(1, 0)


class MixUp(Mixing):
    """The weighted mean of two images (Zhang et al., 2018)."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.draw()
        # another order than the labels' would mix wrongly: both take the image before
        both = images.float().lerp(images.roll(1, 0).float(), 1.0 - kept)
        return both.round().to(images.dtype), self.mixed(labels, kept)


class CutMix(Mixing):
    """A rectangle of another image (Yun et al., 2019); the shares are those of the area."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        height, width = images.shape[-2:]
        side = (1.0 - self.draw()) ** 0.5
        high, wide = round(height * side), round(width * side)
        top = int(torch.randint(0, height - high + 1, ()))
        left = int(torch.randint(0, width - wide + 1, ()))
        other = images.roll(1, 0)
        images = images.clone()
        images[..., top : top + high, left : left + wide] = other[..., top : top + high, left : left + wide]
        return images, self.mixed(labels, 1.0 - high * wide / (height * width))
