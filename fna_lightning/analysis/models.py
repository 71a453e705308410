"""The models that are studied: a common interface over text, image and translation models."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
from torch import Tensor, nn

from fna_lightning.analysis.report import ModelReport
from fna_lightning.attention import Attention
from fna_lightning.config.instantiate import instantiate
from fna_lightning.config.run_config import checked_config, read_settings
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap
from fna_lightning.introspection.probe import probe_indices
from fna_lightning.training.run_folder import run_folder_of

# the input of a model for one example: the token ids of a text, or the (C, S, S) pixels of an image
ModelInput = Any
# computes the probability of the intact predictions and the accuracy (None without labels) of an ablated model
Scorer = Callable[[], tuple[float, float | None]]


@dataclass(frozen=True)
class Example:
    """One input of a model.

    Attributes:
        title: where it comes from.
        input: token ids of a text, or pixels of an image.
        words: its tokens in readable form.
        label: number of the true class, if known.
    """

    title: str
    input: ModelInput
    words: list[str]
    label: int | None = None


@dataclass(frozen=True)
class View:
    """One graph of an example that is shown in depth: a text, an image, a source sentence or its translation.

    Attributes:
        title: of the example, and which view it is.
        words: its tokens in readable form.
        measure: returns the results of a model on this view.
        label: name of the true class, if known.
        pixels: the image, None for texts.
    """

    title: str
    words: list[str]
    measure: Callable[[Any], ModelReport]
    label: str | None = None
    pixels: Tensor | None = None


@dataclass(frozen=True)
class StudiedModel(ABC):
    """A trained model with its codec.

    Attributes:
        label: its name in tables and on the page.
        path: its checkpoint.
        task: the model, in evaluation mode.
        codec: converts between inputs and tensors, and names tokens and classes.
        trust: whether the checkpoint and its run folder may name any function or class.
    """

    label: str
    path: Path
    task: nn.Module
    codec: Any
    trust: bool = False

    # what an example is called, and the option that adds one
    unit: ClassVar[str] = "texts"
    option: ClassVar[str] = "--text"
    # whether an input can be truncated, to measure how paths grow with its length
    truncatable: ClassVar[bool] = True

    @property
    @abstractmethod
    def comparable_key(self) -> object:
        """Two models can be compared token by token if their keys are equal."""

    @abstractmethod
    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        """Return the arguments of the model's forward pass."""

    @abstractmethod
    def maps(self, model_input: ModelInput) -> dict[str, AttentionMap]:
        """Return the weights of every self-attention layer for one input."""

    @abstractmethod
    def examples(self, texts: Sequence[str], images: Sequence[str], max_length: int) -> list[Example]:
        """Return the examples of the user's texts or image files."""

    @abstractmethod
    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        """Return one item of a data split as an example; None if it has no token."""

    @abstractmethod
    def views(self, example: Example) -> list[View]:
        """Return the graphs of an example that are shown in depth."""

    @abstractmethod
    def scorer(self, examples: list[Example]) -> Scorer:
        """Return a function that scores the model, under ablation, on examples."""

    @property
    def attention(self) -> str:
        """The attentions of the model in readable form."""
        return ", ".join(sorted({repr(module) for module in self.task.modules() if isinstance(module, Attention)}))

    @property
    def run_folder(self) -> Path | None:
        """The run folder of the checkpoint; None if it is not in one."""
        return run_folder_of(self.path)

    def self_attention(self, maps: dict[str, AttentionMap]) -> dict[str, AttentionMap]:
        """Return the self-attention among ``maps``; weights that are not finite are an error."""
        for name, layer in maps.items():
            if not layer.weights.isfinite().all():
                raise UsageError(
                    f"{self.path}: the attention weights of {name} are not finite (NaN or infinite); the model has "
                    "diverged, analyze an earlier checkpoint"
                )
        return {name: layer for name, layer in maps.items() if layer.is_self}

    def split_examples(self, split: str, count: int, max_length: int) -> list[Example]:
        """Return ``count`` examples spread evenly over a split of the data the run was trained on."""
        if self.run_folder is None:
            raise UsageError(
                f"{self.path} is not in a run folder, so its data set is unknown; pass {self.unit} by {self.option}, "
                "or move the checkpoint back to RUN/checkpoints next to RUN/config.yaml"
            )
        config = self.run_folder / "config.yaml"
        items = run_data(config, trust=self.trust).split(split)
        examples = [
            self.split_example(items[index], f"{split} {index}", max_length)
            for index in probe_indices(len(items), count)
        ]
        kept = [example for example in examples if example is not None]
        if not kept:
            raise UsageError(f"the split {split!r} of {config} has no example with a token; pass {self.option}")
        return kept


def encoded(text: str, number: int, ids: list[int]) -> list[int]:
    """Return the token ids of the user's text with this number; a text without a token is an error."""
    if not ids:
        raise UsageError(f"text {number} ({text!r}) has no token, so it has no attention graph; pass a longer text")
    return ids


def run_data(config: Path, *, trust: bool = False) -> Any:
    """Return the data module that a run's configuration describes.

    Args:
        config: the config.yaml of the run folder.
        trust: whether it may name any function or class.
    """
    settings = read_settings(config) if trust else checked_config(config)
    data: Any = instantiate(L.LightningDataModule, settings["data"], "data", str(config))
    if not hasattr(data, "split"):
        raise UsageError(f"{config} names {type(data).__name__}, which has no method split(); pass texts by --text")
    data.prepare_data()
    return data
