"""Classes as a plug-in may have them: a bug in a constructor, and settings at unusual places."""

from dataclasses import dataclass
from typing import Any

import lightning as L
from torch import Tensor
from torchmetrics import MetricCollection

from fna_lightning.attention import Attention
from fna_lightning.task import Task


class BrokenData(L.LightningDataModule):
    """A data module whose constructor has a bug."""

    def __init__(self, size: int = 3) -> None:
        super().__init__()
        self.sizes = {"other": size}["key"]


@dataclass(frozen=True)
class Loading:
    """How batches are loaded."""

    batch_size: int = 4


class NestedData(L.LightningDataModule):
    """A data module with its batch size in a group of settings."""

    def __init__(self, loading: Loading = Loading()) -> None:  # noqa: B008 - a frozen dataclass
        super().__init__()


@dataclass(frozen=True)
class Backbone:
    """Settings of a network with two attentions."""

    attention: Attention
    cross_attention: Attention


class NestedTask(Task):
    """A task with two attentions in a group of settings, and a learning rate without an optimizer."""

    def __init__(self, backbone: Backbone, lr: float = 0.1) -> None:
        super().__init__(MetricCollection({}))

    def loss(self, batch: Any, stage: str) -> Tensor:
        return batch


class PlainTask(Task):
    """A task without an attention and without a learning rate."""

    def __init__(self, dim: int = 3) -> None:
        super().__init__(MetricCollection({}))

    def loss(self, batch: Any, stage: str) -> Tensor:
        return batch
