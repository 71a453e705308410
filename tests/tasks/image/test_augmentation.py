"""Augmentations of images."""

import pytest
import torch
from torch.nn import functional as F

from fna_lightning.tasks import (
    AlternatingFlip,
    CutMix,
    MixUp,
    RandAugment,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    TrivialAugment,
)
from fna_lightning.tasks.image.augmentation import Augmentation

ALL = [
    AlternatingFlip(),
    RandomCrop(),
    RandomHorizontalFlip(),
    RandomResizedCrop(),
    RandomErasing(),
    TrivialAugment(),
    RandAugment(),
    MixUp(),
    CutMix(),
]


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    return torch.randint(0, 256, (12, 3, 16, 16), dtype=torch.uint8), torch.arange(12) % 10


@pytest.mark.parametrize("augmentation", ALL, ids=lambda augmentation: type(augmentation).__name__)
def test_shape_and_dtype_are_kept_and_the_input_is_not_modified(augmentation: Augmentation, batch) -> None:
    images, labels = batch
    before = images.clone()
    changed, after = augmentation(images, labels)
    assert changed.shape == images.shape
    assert changed.dtype == torch.uint8
    assert images.equal(before)
    assert len(after) == len(labels)
    if after.ndim == 2:
        assert torch.allclose(after.sum(-1), torch.ones(12))
    else:
        assert after.equal(labels)


def test_horizontal_flip_rate(batch) -> None:
    images, labels = batch
    assert RandomHorizontalFlip(1.0)(images, labels)[0].equal(images.flip(-1))
    many = images.repeat(50, 1, 1, 1)
    flipped = (RandomHorizontalFlip()(many, labels.repeat(50))[0] == many.flip(-1)).all(dim=(1, 2, 3))
    assert 0.4 < flipped.double().mean() < 0.6


def test_two_epochs_contain_each_image_and_its_mirror_image_once(batch) -> None:
    images, labels = batch
    flip = AlternatingFlip()
    first = flip(images, labels)[0]
    # Another order of the images in the second epoch.
    flip.epoch = 1
    order = torch.randperm(len(images))
    second = flip(images[order], labels[order])[0][order.argsort()]
    unchanged = [(epoch == images).all(dim=(1, 2, 3)) for epoch in (first, second)]
    assert (unchanged[0] ^ unchanged[1]).all()
    assert second.equal(first.flip(-1))
    assert 0 < unchanged[0].sum() < len(images)
    flip.epoch = 2
    assert flip(images, labels)[0].equal(first)


def test_crop_is_a_window_of_the_padded_image(batch) -> None:
    images, labels = batch
    padded = F.pad(images, [2] * 4)
    positions = set()
    for image, window in zip(padded, RandomCrop(2)(images, labels)[0], strict=True):
        matches = [
            (row, column)
            for row in range(5)
            for column in range(5)
            if image[:, row : row + 16, column : column + 16].equal(window)
        ]
        assert len(matches) == 1
        positions |= set(matches)
    assert len(positions) > 3


def test_resized_crop_of_the_whole_image_is_the_image(batch) -> None:
    images, labels = batch
    assert RandomResizedCrop(1.0, 1.0)(images, labels)[0].equal(images)


def test_resized_crop_stays_inside_the_image() -> None:
    slope = torch.arange(16, dtype=torch.uint8).mul(8).add(100).expand(64, 3, 16, 16)
    cut, _ = RandomResizedCrop(0.5)(slope, torch.zeros(64))
    assert cut.min() >= 100
    assert cut.max() <= 220
    assert (cut.int().diff(dim=-1) >= 0).all()


def test_random_erasing_erases_at_most_its_fraction() -> None:
    images = torch.zeros(500, 1, 20, 20, dtype=torch.uint8)
    erased = (RandomErasing(0.5, 0.2)(images, torch.zeros(500))[0] > 0).double().mean(dim=(1, 2, 3))
    # A pixel counts as erased if its center is.
    assert erased.max() < 0.2 + 0.06
    assert 0.35 < (erased > 0).double().mean() < 0.6


def test_mixed_labels_are_weighted_like_the_images() -> None:
    images = torch.stack([torch.full((1, 10, 10), value, dtype=torch.uint8) for value in (0, 200)])
    labels = torch.tensor([0, 1])
    for mix in (MixUp(2), CutMix(2)):
        changed, probabilities = mix(images, labels)
        assert torch.allclose(changed.double().mean(dim=(1, 2, 3)) / 200, probabilities[:, 1].double(), atol=0.005)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RandomHorizontalFlip(0.0), r"p must lie in \(0, 1\], got 0.0; leave the augmentation out"),
        (lambda: RandomCrop(0), "padding must be at least 1 pixel, got 0"),
        (lambda: RandomResizedCrop(0.5, 0.5), "stretch must be at least 1"),
        (lambda: RandAugment(magnitude=31), r"magnitude in \[0, 30\], got 2 and 31"),
        (lambda: TrivialAugment(0), "images_per_draw must be at least 1, got 0"),
        (lambda: MixUp(strength=0.0), "strength must be positive, got 0.0"),
    ],
)
def test_invalid_arguments(make, message) -> None:
    with pytest.raises(ValueError, match=message):
        make()
