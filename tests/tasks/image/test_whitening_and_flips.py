"""Image classification: filters from training images, epochs of augmentations, mean over mirror images."""

from functools import partial
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from fna_lightning.attention import Fractional
from fna_lightning.errors import UsageError
from fna_lightning.nn import ConvTokens, EncoderConfig, ViTConfig
from fna_lightning.tasks import DigitsData, ImageClassification
from fna_lightning.tasks.image.augmentation import Augmentation


class EpochRecorder(Augmentation):
    """Records the epoch of every batch."""

    def __init__(self) -> None:
        self.epochs: list[int] = []

    def __call__(self, images: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        self.epochs.append(self.epoch)
        return images, labels


def classifier(**settings: Any) -> ImageClassification:
    tokens = partial(ConvTokens, widths=[12], strides=[2, 1], whiten=True)
    vit = ViTConfig(EncoderConfig(16, 2, 16, depth=1, dropout=0.0), tokens, pooling="mean")
    return ImageClassification(10, 1, 8, Fractional(kappa="vision"), vit, **settings)


def trainer(folder, epochs: int) -> L.Trainer:
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "logger": False}
    return L.Trainer(max_epochs=epochs, limit_train_batches=2, default_root_dir=folder, accelerator="cpu", **quiet)


def test_a_resumed_run_keeps_the_filters_of_its_checkpoint(tmp_path) -> None:
    task, data = classifier(), DigitsData()
    before = task.vit.tokens.blocks[0].weight.clone()
    first = trainer(tmp_path, 1)
    first.fit(task, data)
    layer = task.vit.tokens.blocks[0]
    assert layer.fitted
    assert not layer.weight.equal(before)
    # Filters that no data gives: a second call of ``fit`` would change them.
    layer.weight.mul_(2.0)
    first.save_checkpoint(tmp_path / "end.ckpt")
    resumed = classifier()
    trainer(tmp_path, 2).fit(resumed, data, ckpt_path=tmp_path / "end.ckpt")
    assert_close(resumed.vit.tokens.blocks[0].weight, layer.weight, rtol=0, atol=0)


def test_filters_need_a_data_module_of_images(tmp_path) -> None:
    loader = DigitsData().train_dataloader()
    with pytest.raises(UsageError, match=r"set from an ImageData, got NoneType; use .* or set whiten to false"):
        trainer(tmp_path, 1).fit(classifier(), loader)


def test_augmentations_know_the_epoch(tmp_path) -> None:
    recorder = EpochRecorder()
    trainer(tmp_path, 3).fit(classifier(augmentations=[recorder]), DigitsData())
    assert recorder.epochs == [0, 0, 1, 1, 2, 2]


def test_flip_average_does_not_distinguish_mirror_images() -> None:
    torch.manual_seed(0)
    task = classifier(flip_average=True)
    images = torch.randint(0, 256, (5, 1, 8, 8), dtype=torch.uint8)
    with torch.no_grad():
        task.train()
        assert (task(images) - task(images.flip(-1))).abs().max() > 1e-4
        task.eval()
        assert_close(task(images), task(images.flip(-1)))
        mean = task(images)
        task.flip_average = False
        assert_close(mean, (task(images) + task(images.flip(-1))) / 2)
        assert (task(images) - mean).abs().max() > 1e-5
