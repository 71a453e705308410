"""Text classification."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from fna_lightning.attention import Attention
from fna_lightning.errors import UsageError
from fna_lightning.nn import Embedding, EncoderConfig, LinearNGrams, Pooling
from fna_lightning.task import Task
from fna_lightning.tasks.text.data import TextBatch, TextData


class TextClassification(Task):
    """Text classifier: embedding, encoder, pooling, linear head.

    Args:
        vocab_size: number of token ids; taken from the data.
        num_classes: number of classes; taken from the data.
        attention: the attention of every layer.
        encoder: settings of the encoder.
        embedding: builds the embedding from ``(vocab_size, dim)``.
        pooling: "mean", "max", "cls" or "attention", over real tokens only; "max_all" includes padding.
        optimizer: builds the optimizer from the parameters.
        lr_scheduler: builds the learning-rate schedule from the optimizer; None for a constant rate.
        softmax_twice: apply a softmax before the cross-entropy loss, which applies its own, as in the authors' code.
            The loss of a correct and certain prediction between two classes is then 0.31, and gradients are small.
        linear: builds a linear classifier from ``(vocab_size, num_classes)``. It is fitted to the training texts before
            training, and its logits are averaged with those of the network in evaluation. The network is trained
            without it, because its logits for the training texts are too good. The accuracies of the two parts are
            logged as ``network_accuracy`` and ``linear_accuracy``.
    """

    monitor = ("val/accuracy", "max")

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        attention: Attention,
        encoder: EncoderConfig = EncoderConfig(),  # noqa: B008 - frozen
        embedding: Callable[[int, int], Embedding] = Embedding,
        pooling: str = "mean",
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
        softmax_twice: bool = False,
        linear: Callable[[int, int], LinearNGrams] | None = None,
    ) -> None:
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"accuracy": accuracy}), optimizer, lr_scheduler)
        self.encoder = encoder(attention)
        self.embedding = embedding(vocab_size, self.encoder.dim)
        self.pooling = Pooling(pooling, self.encoder.dim)
        self.head = nn.Linear(self.encoder.dim, num_classes)
        self.softmax_twice = softmax_twice
        self.linear = None if linear is None else linear(vocab_size, num_classes)

    def on_fit_start(self) -> None:
        # A resumed run has loaded the fitted classifier from its checkpoint.
        if self.linear is None or self.linear.fitted:
            return
        if not isinstance(self.datamodule, TextData):
            raise UsageError(
                f"model.linear is fitted to the training split of a TextData, got {type(self.datamodule).__name__}; "
                "use such a data module, or leave model.linear out"
            )
        train = self.datamodule.split("train")
        self.linear.fit([train[number][0] for number in range(len(train))], train.labels)

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Map (B, N) token ids, of which the first ``lengths`` are real, to (B, C) logits."""
        logits = self.network_logits(tokens, lengths)
        return logits if self.linear is None else self.linear.combine(logits, tokens)

    def network_logits(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Return the logits without those of the linear classifier."""
        real = torch.arange(tokens.size(1), device=tokens.device) < lengths[:, None]  # (B, N)
        x = self.encoder(self.embedding(tokens), real[:, None, None, :])
        return self.head(self.pooling(x, real))

    def loss(self, batch: TextBatch, stage: str) -> Tensor:
        logits = self.network_logits(batch.tokens, batch.lengths)
        if self.linear is not None and stage != "train":
            for name, part in (("network", logits), ("linear", self.linear(batch.tokens))):
                accuracy = (part.argmax(dim=1) == batch.labels).float().mean()
                self.log(f"{stage}/{name}_accuracy", accuracy, batch_size=self.batch_size(batch), sync_dist=True)
            logits = self.linear.combine(logits, batch.tokens)
        self.stage_metrics(stage).update(logits, batch.labels)
        scores = logits.softmax(dim=-1) if self.softmax_twice else logits
        return F.cross_entropy(scores, batch.labels)

    def probe(self, batch: TextBatch, max_length: int | None = None) -> dict[str, Tensor]:
        lengths = batch.lengths if max_length is None else batch.lengths.clamp(max=max_length)
        self(batch.tokens[:, :max_length], lengths)
        return {"": lengths}

    def predict_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Any]:
        probabilities = self(batch.tokens, batch.lengths).softmax(dim=-1)
        classes = probabilities.argmax(dim=-1)
        names = getattr(self.datamodule, "class_names", None)
        # a data module of a plug-in may have no names
        labels = classes if names is None else [names[number] for number in classes.tolist()]
        return {"class": labels, "probability": probabilities.amax(dim=-1)}
