"""Text classification: an encoder, pooled to one vector, to a class."""

from collections.abc import Callable

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from fna_lightning.attention import Attention
from fna_lightning.nn import Embedding, Encoder, Pooling
from fna_lightning.task import Task
from fna_lightning.tasks.text.data import TextBatch


class TextClassification(Task):
    """Says which class a text belongs to.

    Args:
        vocab_size: number of token ids; taken from the data.
        num_classes: number of classes; taken from the data.
        attention: the attention of every layer.
        encoder: makes the encoder from the attention.
        embedding: makes the embedding from the number of token ids and the width.
        pooling: "mean", "max", "cls" or "attention", over real tokens only; "max_all" sees the padding too.
        optimizer: makes the optimiser from the parameters.
        lr_scheduler: makes the learning-rate schedule from the optimiser; None keeps the rate.
        softmax_twice: take the loss of softmaxed scores, as the authors' code does: cross-entropy applies a softmax of
            its own, so a sure and right answer between two classes still costs 0.31, and gradients are small.
    """

    monitor = ("val/accuracy", "max")

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        attention: Attention,
        encoder: Callable[[Attention], Encoder] = Encoder,
        embedding: Callable[[int, int], Embedding] = Embedding,
        pooling: str = "mean",
        optimizer: OptimizerCallable = Adam,
        lr_scheduler: LRSchedulerCallable | None = None,
        softmax_twice: bool = False,
    ) -> None:
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"accuracy": accuracy}), optimizer, lr_scheduler)
        self.encoder = encoder(attention)
        self.embedding = embedding(vocab_size, self.encoder.dim)
        self.pooling = Pooling(pooling, self.encoder.dim)
        self.head = nn.Linear(self.encoder.dim, num_classes)
        self.softmax_twice = softmax_twice

    def forward(self, tokens: Tensor, lengths: Tensor) -> Tensor:
        """Map (B, N) token ids, of which the first ``lengths`` are real, to (B, C) logits."""
        real = torch.arange(tokens.size(1), device=tokens.device) < lengths[:, None]  # (B, N)
        x = self.encoder(self.embedding(tokens), real[:, None, None, :])
        return self.head(self.pooling(x, real))

    def loss(self, batch: TextBatch, stage: str) -> Tensor:
        logits = self(batch.tokens, batch.lengths)
        self.stage_metrics(stage).update(logits, batch.labels)
        scores = logits.softmax(dim=-1) if self.softmax_twice else logits
        return F.cross_entropy(scores, batch.labels)

    def probe(self, batch: TextBatch, max_length: int | None = None) -> dict[str, Tensor]:
        lengths = batch.lengths if max_length is None else batch.lengths.clamp(max=max_length)
        self(batch.tokens[:, :max_length], lengths)
        return {"": lengths}

    def predict_step(self, batch: TextBatch, batch_idx: int) -> dict[str, Tensor]:
        probabilities = self(batch.tokens, batch.lengths).softmax(dim=-1)
        return {"class": probabilities.argmax(dim=-1), "probability": probabilities.amax(dim=-1)}
