"""Image classification: a vision Transformer."""

from collections.abc import Callable
from typing import Any

from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Adam
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from fna_lightning.attention import Attention
from fna_lightning.nn import Encoder, ImageTokens, Patches, ViT
from fna_lightning.task import Task
from fna_lightning.tasks.image.augmentation import Augmentation
from fna_lightning.tasks.image.data import ImageBatch


class ImageClassification(Task):
    """Says what an image shows.

    Args:
        num_classes: number of classes; taken from the data.
        channels: 1 for grey images, 3 for colours; taken from the data.
        image_size: pixels of a side; taken from the data.
        attention: the attention of every layer.
        encoder: makes the encoder from the attention.
        tokens: makes the map from images to tokens from the colours and the width.
        positions: "learned", "sinusoidal" or "none", on the grid of tokens.
        pooling: "cls", "mean", "max" or "attention".
        augmentations: what is done to training images, in this order.
        label_smoothing: share of a training label that is spread over all classes.
        dropout: probability of dropping a coordinate of a token before the encoder.
        optimizer: makes the optimiser from the parameters.
        lr_scheduler: makes the learning-rate schedule from the optimiser; None keeps the rate.
    """

    monitor = ("val/accuracy", "max")

    def __init__(
        self,
        num_classes: int,
        channels: int,
        image_size: int,
        attention: Attention,
        encoder: Callable[[Attention], Encoder] = Encoder,
        tokens: Callable[[int, int], ImageTokens] = Patches,
        positions: str = "learned",
        pooling: str = "cls",
        augmentations: list[Augmentation] | None = None,
        label_smoothing: float = 0.0,
        dropout: float = 0.0,
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"accuracy": accuracy}), optimizer, lr_scheduler)
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.vit = ViT(
            encoder(attention),
            num_classes,
            channels=channels,
            image_size=image_size,
            tokens=tokens,
            positions=positions,
            pooling=pooling,
            dropout=dropout,
        )
        self.augmentations = augmentations or []
        self.label_smoothing = label_smoothing
        self.class_names = [str(number) for number in range(num_classes)]

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, C, S, S) images of values 0 to 255 to (B, classes) logits."""
        # from -1 to 1, as in the authors' code
        return self.vit(images.float() / 127.5 - 1.0)

    def loss(self, batch: ImageBatch, stage: str) -> Tensor:
        images, labels = batch
        smoothing = 0.0
        if stage == "train":
            smoothing = self.label_smoothing
            for change in self.augmentations:
                images, labels = change(images, labels)
        logits = self(images)
        # of mixed images, the accuracy in what the image itself shows
        self.stage_metrics(stage).update(logits, batch.labels)
        return F.cross_entropy(logits, labels, label_smoothing=smoothing)

    def probe(self, batch: ImageBatch, max_length: int | None = None) -> dict[str, Tensor]:
        # an image cannot be cut off as a text can: all of its tokens are read
        self(batch.images)
        return {}

    def predict_step(self, batch: ImageBatch, batch_idx: int) -> dict[str, Any]:
        probabilities = self(batch.images).softmax(dim=-1)
        names = [self.class_names[number] for number in probabilities.argmax(dim=-1).tolist()]
        return {"class": names, "probability": probabilities.amax(dim=-1).tolist()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        # a checkpoint of another program may carry none
        self.class_names = (checkpoint.get("codec") or {}).get("class_names", self.class_names)
