"""Augmentations drawn from torchvision's lists of operations."""

from abc import abstractmethod

import torch
from torch import Tensor, nn
from torchvision.transforms import v2

from fna_lightning.tasks.image.augmentation import Augmentation


class AutoAugmentation(Augmentation):
    """Does one draw of operations to a few images at a time: as many calls as there are groups in a batch.

    Args:
        images_per_draw: images that get the same operations; fewer is more random and slower.
    """

    def __init__(self, images_per_draw: int = 8) -> None:
        if images_per_draw < 1:
            raise ValueError(f"images_per_draw must be at least 1, got {images_per_draw}")
        self.images_per_draw = images_per_draw
        self.transform = self.make()

    @abstractmethod
    def make(self) -> nn.Module:
        """Return torchvision's transform of uint8 images."""

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        # neighbours in a batch are strangers, so groups are too
        return torch.cat([self.transform(group) for group in images.split(self.images_per_draw)]), labels


class TrivialAugment(AutoAugmentation):
    """One random operation of random strength (Müller and Hutter, 2021)."""

    def make(self) -> nn.Module:
        return v2.TrivialAugmentWide()


class RandAugment(AutoAugmentation):
    """Some random operations of one strength (Cubuk et al., 2020).

    Args:
        operations: how many, one after another.
        magnitude: how strong, from 0 to 30.
        images_per_draw: images that get the same operations; fewer is more random and slower.
    """

    def __init__(self, operations: int = 2, magnitude: int = 9, images_per_draw: int = 8) -> None:
        if operations < 1 or not 0 <= magnitude <= 30:
            raise ValueError(
                f"operations must be at least 1 and magnitude in [0, 30], got {operations} and {magnitude}"
            )
        self.operations = operations
        self.magnitude = magnitude
        super().__init__(images_per_draw)

    def make(self) -> nn.Module:
        return v2.RandAugment(self.operations, self.magnitude)
