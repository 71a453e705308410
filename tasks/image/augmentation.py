"""Changes to training images that leave what they show; each works on a whole batch of tensors, wherever it lies."""

from abc import ABC, abstractmethod

import torch
from torch import Tensor
from torch.nn import functional as F


class Augmentation(ABC):
    """Changes (B, C, H, W) uint8 images and their labels, each image in its own way."""

    @abstractmethod
    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Return other images and labels: (B,) class numbers, or (B, classes) shares where images were mixed."""


class RandomHorizontalFlip(Augmentation):
    """Mirrors left and right.

    Args:
        p: share of the images that is mirrored.
    """

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_share("p", p)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        turned = torch.rand(len(images), device=images.device) < self.p
        return torch.where(turned[:, None, None, None], images.flip(-1), images), labels


class RandomCrop(Augmentation):
    """Shifts by up to so many pixels; what comes in at the border is black.

    Args:
        padding: most pixels an image is shifted.
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
        which = torch.arange(batch, device=images.device)[:, None, None]
        # two advanced indices with a slice between them: the colours come last
        return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2), labels


class RandomResizedCrop(Augmentation):
    """Cuts out a part and enlarges it to the whole.

    Args:
        smallest: least share of the area that is kept.
        stretch: most that width against height changes.
    """

    def __init__(self, smallest: float = 0.8, stretch: float = 4 / 3) -> None:
        self.smallest = check_share("smallest", smallest)
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
        places = F.affine_grid(theta, list(images.shape), align_corners=False)
        cut = F.grid_sample(images.float(), places, padding_mode="border", align_corners=False)
        return cut.round().to(torch.uint8), labels


class RandomErasing(Augmentation):
    """Hides a rectangle behind noise (Zhong et al., 2017, "Random erasing").

    Args:
        p: share of the images it is done to.
        largest: most of the area that is hidden.
    """

    def __init__(self, p: float = 0.25, largest: float = 0.2) -> None:
        self.p = check_share("p", p)
        self.largest = check_share("largest", largest)

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        batch, _, height, width = images.shape
        draw = torch.rand(5, batch, 1, device=images.device)
        area, ratio = self.largest * draw[0], 2.0 ** (2.0 * draw[1] - 1.0)
        rows = _interval(draw[2], (area * ratio).sqrt().clamp(max=1.0), height)
        columns = _interval(draw[3], (area / ratio).sqrt().clamp(max=1.0), width)
        hidden = rows[:, None, :, None] & columns[:, None, None, :] & (draw[4] < self.p)[:, :, None, None]
        noise = torch.randint(0, 256, images.shape, dtype=torch.uint8, device=images.device)
        return torch.where(hidden, noise, images), labels


def _interval(place: Tensor, share: Tensor, length: int) -> Tensor:
    """Return a (B, length) mask of a run of ``share * length`` pixels, its free room before it divided at ``place``."""
    start = place * (1.0 - share) * length
    pixel = torch.arange(length, device=place.device) + 0.5
    return (pixel >= start) & (pixel < start + share * length)


def check_share(name: str, value: float) -> float:
    """Return ``value`` if it is a share."""
    if not 0.0 < value <= 1.0:
        raise ValueError(f"{name} must lie in (0, 1], got {value}; leave the augmentation out to do nothing")
    return value
