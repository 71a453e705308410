"""Augmentations of training images.

The names are those of torchvision. These versions draw separate parameters for each image of a batch of tensors and
apply them in a few tensor operations on any device, which is faster than torchvision's transforms of one image at
a time; applied to a batch, torchvision's transforms use the same parameters for all images.
"""

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torchvision.transforms import v2


class Augmentation(ABC):
    """Augments (B, C, H, W) uint8 images and their labels.

    Attributes:
        epoch: number of the current epoch, set by the task.
    """

    epoch: int = 0

    @abstractmethod
    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return new images and labels: (B,) class indices, or (B, classes) probabilities of mixed images."""


class RandomHorizontalFlip(Augmentation):
    """Flips images left to right.

    Args:
        p: probability of flipping an image.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_fraction("p", p)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        flipped = torch.rand(len(images), device=images.device) < self.p
        return torch.where(flipped[:, None, None, None], images.flip(-1), images), labels


class AlternatingFlip(Augmentation):
    """Flips each image left to right in every second epoch.

    Two successive epochs contain each image and its mirror image once. About half of the images, those with an odd sum
    of pixels, begin with the mirror image. It must be the first augmentation, because others change this sum.
    """

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        flipped = (images.sum(dim=(1, 2, 3), dtype=torch.int64) + self.epoch) % 2 == 1
        return torch.where(flipped[:, None, None, None], images.flip(-1), images), labels


class RandomCrop(Augmentation):
    """Pads images with black pixels and crops them to their size at a random position.

    Args:
        padding: number of pixels added on each side.
    """

    def __init__(self, padding: int = 4) -> None:
        if padding < 1:
            raise ValueError(f"padding must be at least 1 pixel, got {padding}")
        self.padding = padding

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, height, width = images.shape
        padded = F.pad(images, [self.padding] * 4)
        first = torch.randint(0, 2 * self.padding + 1, (2, batch, 1), device=images.device)
        rows = first[0] + torch.arange(height, device=images.device)  # (B, H)
        columns = first[1] + torch.arange(width, device=images.device)  # (B, W)
        index = torch.arange(batch, device=images.device)[:, None, None]
        # Advanced indices with a slice between them move the channels to the end.
        return padded[index, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2), labels


class RandomResizedCrop(Augmentation):
    """Crops a random part of each image and enlarges it to the size of the image.

    Args:
        smallest: smallest fraction of the area that is kept.
        stretch: largest change of the aspect ratio.
    """

    def __init__(self, smallest: float = 0.8, stretch: float = 4 / 3) -> None:
        self.smallest = check_fraction("smallest", smallest)
        if stretch < 1.0:
            raise ValueError(f"stretch must be at least 1 (no change), got {stretch}")
        self.stretch = stretch

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        draw = torch.rand(4, len(images), device=images.device)
        area = self.smallest + (1.0 - self.smallest) * draw[0]
        ratio = self.stretch ** (2.0 * draw[1] - 1.0)
        width, height = (area * ratio).sqrt().clamp(max=1.0), (area / ratio).sqrt().clamp(max=1.0)
        theta = torch.zeros(len(images), 2, 3, device=images.device)
        theta[:, 0, 0], theta[:, 1, 1] = width, height
        theta[:, 0, 2], theta[:, 1, 2] = (1.0 - width) * (2.0 * draw[2] - 1.0), (1.0 - height) * (2.0 * draw[3] - 1.0)
        grid = F.affine_grid(theta, list(images.shape), align_corners=False)
        crops = F.grid_sample(images.float(), grid, padding_mode="border", align_corners=False)
        return crops.round().to(torch.uint8), labels


class RandomErasing(Augmentation):
    """Replaces a rectangle of an image by noise (Zhong et al., 2017, "Random erasing").

    Args:
        p: probability of erasing a part of an image.
        largest: largest fraction of the area that is erased.
    """

    def __init__(self, p: float = 0.25, largest: float = 0.2) -> None:
        self.p = check_fraction("p", p)
        self.largest = check_fraction("largest", largest)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, height, width = images.shape
        draw = torch.rand(5, batch, 1, device=images.device)
        area, ratio = self.largest * draw[0], 2.0 ** (2.0 * draw[1] - 1.0)
        rows = _interval(draw[2], (area * ratio).sqrt().clamp(max=1.0), height)
        columns = _interval(draw[3], (area / ratio).sqrt().clamp(max=1.0), width)
        erased = rows[:, None, :, None] & columns[:, None, None, :] & (draw[4] < self.p)[:, :, None, None]
        noise = torch.randint(0, 256, images.shape, dtype=torch.uint8, device=images.device)
        return torch.where(erased, noise, images), labels


class AutoAugmentation(Augmentation):
    """Base class of torchvision's augmentation policies, applied to groups of images.

    Args:
        images_per_draw: number of images with the same operations; fewer are more random and slower.
    """

    def __init__(self, images_per_draw: int = 8) -> None:
        if images_per_draw < 1:
            raise ValueError(f"images_per_draw must be at least 1, got {images_per_draw}")
        self.images_per_draw = images_per_draw
        self.transform = self.build()

    @abstractmethod
    def build(self) -> nn.Module:
        """Return torchvision's transform of uint8 images."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # Batches are shuffled, so neighboring images form random groups.
        return torch.cat([self.transform(group) for group in images.split(self.images_per_draw)]), labels


class TrivialAugment(AutoAugmentation):
    """One random operation with a random magnitude (Müller and Hutter, 2021)."""

    def build(self) -> nn.Module:
        return v2.TrivialAugmentWide()


class RandAugment(AutoAugmentation):
    """Several random operations with the same magnitude (Cubuk et al., 2020).

    Args:
        operations: number of operations, applied one after another.
        magnitude: magnitude of the operations, from 0 to 30.
        images_per_draw: number of images with the same operations; fewer are more random and slower.
    """

    def __init__(self, operations: int = 2, magnitude: int = 9, images_per_draw: int = 8) -> None:
        if operations < 1 or not 0 <= magnitude <= 30:
            raise ValueError(
                f"operations must be at least 1 and magnitude in [0, 30], got {operations} and {magnitude}"
            )
        self.operations = operations
        self.magnitude = magnitude
        super().__init__(images_per_draw)

    def build(self) -> nn.Module:
        return v2.RandAugment(self.operations, self.magnitude)


class Mixing(Augmentation):
    """Base class of augmentations that mix each image of a batch with the previous one.

    Args:
        num_classes: number of classes.
        strength: parameter of the beta distribution of the mixing ratio, drawn once per batch; 1 is uniform.
    """

    def __init__(self, num_classes: int = 10, strength: float = 1.0) -> None:
        if not strength > 0.0:
            raise ValueError(f"strength must be positive, got {strength}; leave the augmentation out to do nothing")
        self.num_classes = num_classes
        self.strength = strength

    def draw(self) -> float:
        """Draw the fraction of an image that is kept."""
        return torch.distributions.Beta(self.strength, self.strength).sample().item()

    def mix_labels(self, labels: Tensor, kept: float) -> Tensor:
        """Return the (B, classes) mixed probabilities of labels that are class indices or probabilities."""
        if labels.ndim == 1:
            labels = F.one_hot(labels, self.num_classes)
        return kept * labels + (1.0 - kept) * labels.roll(1, 0)


class MixUp(Mixing):
    """Weighted mean of two images (Zhang et al., 2018)."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        kept = self.draw()
        # Images and labels are rolled alike, so that both are mixed with the same image.
        mixed = images.float().lerp(images.roll(1, 0).float(), 1.0 - kept)
        return mixed.round().to(images.dtype), self.mix_labels(labels, kept)


class CutMix(Mixing):
    """Replaces a rectangle by that of another image (Yun et al., 2019); labels are weighted by area."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        height, width = images.shape[-2:]
        side = (1.0 - self.draw()) ** 0.5
        cut_height, cut_width = round(height * side), round(width * side)
        top = int(torch.randint(0, height - cut_height + 1, ()))
        left = int(torch.randint(0, width - cut_width + 1, ()))
        rectangle = (..., slice(top, top + cut_height), slice(left, left + cut_width))
        mixed = images.clone()
        mixed[rectangle] = images.roll(1, 0)[rectangle]
        return mixed, self.mix_labels(labels, 1.0 - cut_height * cut_width / (height * width))


def _interval(position: Tensor, fraction: Tensor, length: int) -> Tensor:
    """Return a (B, length) mask of ``fraction * length`` adjacent pixels at the relative ``position``."""
    start = position * (1.0 - fraction) * length
    pixel = torch.arange(length, device=position.device) + 0.5
    return (pixel >= start) & (pixel < start + fraction * length)


def check_fraction(name: str, value: float) -> float:
    """Return ``value`` if it lies in (0, 1], else raise ValueError."""
    if not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must lie in (0, 1], got {value}; leave the augmentation out to do nothing")
    return value
