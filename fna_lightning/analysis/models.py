"""The models that are studied: a common interface over models of texts, images, translations, fields and batches."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import lightning as L
from torch import Tensor, nn

from fna_lightning.analysis.layer_names import readable_layers
from fna_lightning.analysis.report import ModelInfo, ModelReport
from fna_lightning.attention import Attention
from fna_lightning.config.instantiate import instantiate
from fna_lightning.config.run_config import checked_config, read_settings
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_layers
from fna_lightning.introspection.probe import probe_indices
from fna_lightning.training.run_folder import run_folder_of

# the input of a model for one example: the token ids of a text, the (C, S, S) pixels of an image, ...
ModelInput = Any


@dataclass(frozen=True)
class UserInputs:
    """The examples that the user passes to ``study``; at most one kind is not empty."""

    texts: Sequence[str] = ()
    images: Sequence[str | Path | Tensor] = ()
    sources: Sequence[str] = ()
    points: Any = None
    batch: Any = None

    @property
    def kinds(self) -> list[str]:
        """The names of the arguments that are not empty."""
        lists = [name for name in ("texts", "images", "sources") if len(getattr(self, name))]
        return lists + [name for name in ("points", "batch") if getattr(self, name) is not None]


@dataclass(frozen=True)
class Example:
    """One input of a model.

    Attributes:
        title: where it comes from.
        input: token ids of a text, pixels of an image, ...
        words: its tokens in readable form.
        label: number of the true class, if known.
        reference: reference translation, if known.
        truncated: whether the text is longer than its tokens here.
    """

    title: str
    input: ModelInput
    words: list[str]
    label: int | None = None
    reference: str | None = None
    truncated: bool = False


@dataclass(frozen=True)
class View:
    """One graph of an example: a text, an image, a source sentence or its translation.

    Attributes:
        title: of the example, and which view it is.
        words: its tokens in readable form.
        measure: returns the results of a model on this view; the second argument is whether tensors are kept.
        label: name of the true class, or the reference translation, if known.
        extra: other fields of ``ExampleReport``.
    """

    title: str
    words: list[str]
    measure: Callable[[Any, bool], ModelReport]
    label: str | None = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Scores:
    """Scores of an ablated model.

    Attributes:
        probability: (draws, examples) probability of the intact prediction.
        correct: (draws, trials) whether each prediction is correct; None without labels.
    """

    probability: Tensor
    correct: Tensor | None


# runs an ablated model on fixed examples
Scorer = Callable[[], Scores]


@dataclass(frozen=True)
class StudiedModel(ABC):
    """A trained model, as ``load`` returns it.

    Attributes:
        label: its name in tables and on the page.
        path: its checkpoint, or the name of its class for a model in memory.
        task: the model, in evaluation mode.
        codec: converts between inputs and tensors, and names tokens and classes.
        trust: whether the checkpoint and its run folder may name any function or class.
    """

    label: str
    path: Path
    task: nn.Module
    codec: Any
    trust: bool = False

    # kind of the report, what an example is called, and the argument and option that add one
    kind: ClassVar[str] = "text"
    unit: ClassVar[str] = "texts"
    argument: ClassVar[str] = "texts"
    option: ClassVar[str] = "--text"
    # whether an input can be truncated, to measure how the graph changes with its length
    truncatable: ClassVar[bool] = True

    @property
    @abstractmethod
    def comparable_key(self) -> object:
        """Two models can be compared token by token if their keys are equal."""

    @abstractmethod
    def maps(self, model_input: ModelInput) -> dict[str, AttentionMap]:
        """Return the weights of every self-attention layer for one input."""

    @abstractmethod
    def examples(self, inputs: UserInputs, max_length: int) -> list[Example]:
        """Return the user's examples."""

    @abstractmethod
    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        """Return one item of a data split as an example; None if it has no token."""

    @abstractmethod
    def views(self, example: Example) -> list[View]:
        """Return the graphs of an example."""

    @abstractmethod
    def scorer(self, examples: list[Example]) -> Scorer | None:
        """Return a function that scores the model, under ablation, on examples; None if it predicts nothing."""

    @property
    def attention(self) -> str:
        """The attentions of the model in readable form."""
        attentions = {repr(module) for module in self.task.modules() if isinstance(module, Attention)}
        return ", ".join(sorted(attentions)) or "DotProduct()"

    def info(self, layers: Iterable[str]) -> ModelInfo:
        """Return the model in reports, where these attention layers occur."""
        known = attention_layers(self.task)
        return ModelInfo(self.label, self.attention, self.path.name, readable_layers([*known, *layers]))

    @property
    def way_out(self) -> str:
        """How to pass examples, for error messages."""
        if not self.option:
            return f"pass {self.argument}=... in Python"
        return f"pass {self.argument} by {self.option}, or by {self.argument}=[...] in Python"

    @property
    def run_folder(self) -> Path | None:
        """The run folder of the checkpoint; None if it is not in one."""
        return run_folder_of(self.path)

    def check_inputs(self, inputs: UserInputs) -> None:
        """Raise a UsageError if the user's examples are not those of this kind of model."""
        for kind in inputs.kinds:
            if kind != self.argument:
                raise UsageError(f"{self.path} is {a_model(self.kind)} and does not take {kind}; {self.way_out}")

    def check_finite(self, maps: Mapping[str, AttentionMap]) -> None:
        """Raise a UsageError if weights are not finite."""
        for name, layer in maps.items():
            if not layer.weights.isfinite().all():
                raise UsageError(
                    f"{self.path}: the attention weights of {name} are not finite (NaN or infinite); the model has "
                    "diverged, analyze an earlier checkpoint"
                )

    def self_attention(self, maps: dict[str, AttentionMap]) -> dict[str, AttentionMap]:
        """Return the self-attention among ``maps``; weights that are not finite are an error."""
        self.check_finite(maps)
        return {name: layer for name, layer in maps.items() if layer.is_self}

    def split_examples(self, split: str, count: int, max_length: int) -> list[Example]:
        """Return ``count`` examples spread evenly over a split of the data the run was trained on."""
        data = self.data()
        items = data.split(split)
        examples = [
            self.split_example(items[index], f"{split} {index}", max_length)
            for index in probe_indices(len(items), count)
        ]
        kept = [example for example in examples if example is not None]
        if not kept:
            raise UsageError(f"the split {split!r} of {self.path} has no example with a token; {self.way_out}")
        return kept

    def data(self) -> Any:
        """Return the data module that the model was trained with."""
        if self.run_folder is None:
            raise UsageError(
                f"{self.path} is not in a run folder, so its data set is unknown; {self.way_out}, or move the "
                "checkpoint back to RUN/checkpoints next to RUN/config.yaml"
            )
        return run_data(self.run_folder / "config.yaml", trust=self.trust)


def a_model(kind: str) -> str:
    """Return what a model of this kind is called in error messages."""
    names = {"image": "an image model", "batch": "a module that is studied on a batch"}
    return names.get(kind, f"a {kind} model")


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
