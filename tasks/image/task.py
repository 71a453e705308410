"""Image classification."""

from typing import Any

from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor
from torch.nn import functional as F
from torch.optim import Adam
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from fna_lightning.attention import Attention
from fna_lightning.errors import UsageError
from fna_lightning.nn import PatchWhitening, ViTConfig
from fna_lightning.task import Task
from fna_lightning.tasks.image.augmentation import Augmentation
from fna_lightning.tasks.image.data import ImageBatch, ImageData

# Number of training images whose patches determine a whitening layer.
WHITENING_IMAGES = 2000


def scale_pixels(images: Tensor) -> Tensor:
    """Return images of values 0 to 255 scaled to [-1, 1], as in the authors' code."""
    return images.float() / 127.5 - 1.0


class ImageClassification(Task):
    """Image classifier: a vision Transformer.

    Args:
        num_classes: number of classes; taken from the data.
        channels: 1 for grayscale images, 3 for color images; taken from the data.
        image_size: side of an image in pixels; taken from the data.
        attention: the attention of every layer.
        vit: settings of the network.
        augmentations: augmentations of the training images, applied in this order.
        label_smoothing: amount of label smoothing in training.
        flip_average: outside training, return the mean of the logits of each image and of its mirror image.
        optimizer: builds the optimizer from the parameters.
        lr_scheduler: builds the learning-rate schedule from the optimizer; None for a constant rate.
    """

    monitor = ("val/accuracy", "max")

    def __init__(
        self,
        num_classes: int,
        channels: int,
        image_size: int,
        attention: Attention,
        vit: ViTConfig = ViTConfig(),  # noqa: B008 - frozen
        augmentations: list[Augmentation] | None = None,
        label_smoothing: float = 0.0,
        flip_average: bool = False,
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"accuracy": accuracy}), optimizer, lr_scheduler)
        if not 0.0 <= label_smoothing < 1.0:
            raise ValueError(f"label_smoothing must lie in [0, 1), got {label_smoothing}")
        self.vit = vit(num_classes, channels, image_size, attention)
        self.augmentations = augmentations or []
        self.label_smoothing = label_smoothing
        self.flip_average = flip_average
        self.class_names = [str(label) for label in range(num_classes)]

    def forward(self, images: Tensor) -> Tensor:
        """Map (B, C, S, S) images of values 0 to 255 to (B, classes) logits."""
        pixels = scale_pixels(images)
        logits = self.vit(pixels)
        if self.flip_average and not self.training:
            logits = (logits + self.vit(pixels.flip(-1))) / 2
        return logits

    def on_fit_start(self) -> None:
        """Set whitening layers from training images; those of a resumed or loaded checkpoint keep their filters."""
        layers = [layer for layer in self.vit.modules() if isinstance(layer, PatchWhitening) and not layer.fitted]
        if layers:
            if not isinstance(self.datamodule, ImageData):
                raise UsageError(
                    f"the filters of whitened tokens are set from an ImageData, got {type(self.datamodule).__name__}; "
                    "use a subclass of ImageData, call PatchWhitening.fit before training, or set whiten to false"
                )
            images = self.datamodule.split("train")
            # Evenly spaced, because files may be sorted by class.
            rows = range(0, len(images), max(1, len(images) // WHITENING_IMAGES))
            pixels = scale_pixels(images.__getitems__(list(rows)).images)
            for layer in layers:
                layer.fit(pixels.to(layer.weight.device))

    def loss(self, batch: ImageBatch, stage: str) -> Tensor:
        images, labels = batch
        smoothing = 0.0
        if stage == "train":
            smoothing = self.label_smoothing
            for augmentation in self.augmentations:
                augmentation.epoch = self.current_epoch
                images, labels = augmentation(images, labels)
        logits = self(images)
        # The accuracy counts the original label also where an augmentation mixed two images.
        self.stage_metrics(stage).update(logits, batch.labels)
        return F.cross_entropy(logits, labels, label_smoothing=smoothing)

    def probe(self, batch: ImageBatch, max_length: int | None = None) -> dict[str, Tensor]:
        # An image cannot be truncated as a text can, so all of its tokens are used.
        self.vit(scale_pixels(batch.images))
        return {}

    def predict_step(self, batch: ImageBatch, batch_idx: int) -> dict[str, Any]:
        probabilities = self(batch.images).softmax(dim=-1)
        names = [self.class_names[label] for label in probabilities.argmax(dim=-1).tolist()]
        return {"class": names, "probability": probabilities.amax(dim=-1).tolist()}

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        # Checkpoints that were not saved by this program may have no codec.
        self.class_names = (checkpoint.get("codec") or {}).get("class_names", self.class_names)
