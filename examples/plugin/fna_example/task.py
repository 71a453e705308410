"""Example of a task: a model, its loss and its metrics."""

from typing import Any

import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.nn import functional as F
from torch.optim import Adam
from torchmetrics import MetricCollection
from torchmetrics.classification import MulticlassAccuracy

from fna_lightning.attention import Attention
from fna_lightning.nn import Encoder, LayerConfig
from fna_lightning.task import Task


class FindRepeat(Task):
    """Classifies whether the first token of a sequence occurs again.

    Args:
        vocab_size: number of tokens; taken from the data.
        num_classes: number of classes; taken from the data.
        attention: the attention of the encoder.
        dim: width of a token.
        optimizer: builds the optimizer from the parameters.
    """

    monitor = ("val/accuracy", "max")

    def __init__(
        self,
        vocab_size: int,
        num_classes: int,
        attention: Attention,
        dim: int = 32,
        optimizer: OptimizerCallable = Adam,
    ) -> None:
        accuracy = MulticlassAccuracy(num_classes, average="micro", validate_args=False)
        super().__init__(MetricCollection({"accuracy": accuracy}), optimizer)
        self.tokens = nn.Embedding(vocab_size, dim)
        self.first = nn.Parameter(torch.randn(dim) * 0.5)
        self.encoder = Encoder(attention, LayerConfig(dim=dim, num_heads=2, ffn_dim=4 * dim, dropout=0.0))
        self.head = nn.Linear(dim, num_classes)

    def forward(self, rows: Tensor) -> Tensor:
        """Map (B, N) tokens to (B, C) logits."""
        x = self.tokens(rows)
        x = torch.cat([x[:, :1] + self.first, x[:, 1:]], dim=1)
        return self.head(self.encoder(x)[:, 0])

    def loss(self, batch: Any, stage: str) -> Tensor:
        rows, labels = batch
        logits = self(rows)
        self.stage_metrics(stage).update(logits, labels)
        return F.cross_entropy(logits, labels)

    def probe(self, batch: Any, max_length: int | None = None) -> dict[str, Tensor]:
        rows = batch[0][:, :max_length]
        self(rows)
        return {"": torch.full((len(rows),), rows.size(1))}
