"""The results of a study: typed dataclasses, written as JSON and as an HTML page, and shown in notebooks.

results.json holds all fields except tensors, which only the page and the figures need.
"""

import json
import math
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from fna_lightning.errors import UsageError
from fna_lightning.utils.files import write_text

# mean entropy of the rows, divided by log n, above which a head is called near uniform
NEAR_UNIFORM = 0.98
# number of a head that stands for the mean over the heads of its layer
MEAN_HEAD = -1
# metadata of the fields that are not written to results.json
IN_MEMORY = {"in_memory": True}


@dataclass(frozen=True)
class ModelInfo:
    """A studied model.

    Attributes:
        label: its name in tables and figures.
        attention: its attentions in readable form.
        checkpoint: name of its checkpoint file or folder, or of its class.
        layers: readable name of each attention layer, such as "layer 1", by module name.
    """

    label: str
    attention: str
    checkpoint: str
    layers: dict[str, str]


@dataclass(frozen=True)
class HeadReport:
    """One self-attention head, or the mean over the heads of a layer, on one example.

    The tensors are None unless the example is stored.

    Attributes:
        layer: module name of the attention layer.
        head: number of the head; -1 is the mean of the weights over the heads of the layer.
        measures: value of each of ``graph.MEASURES``.
        spectrum: moduli of the eigenvalues, largest first; empty unless the example is stored.
        laplacian: eigenvalues of ``graph.laplacian_spectrum``, ascending; empty unless the example is stored.
        weights: (n, n) attention weights, float32.
        parents: (n, n) result of ``graph.path_parents``.
        hops: (n, n) hops of ``graph.path_lengths``.
        points: (n, 2) diffusion coordinates; None if there is no diffusion map.
    """

    layer: str
    head: int
    measures: dict[str, float]
    spectrum: list[float] = field(default_factory=list)
    laplacian: list[float] = field(default_factory=list)
    weights: Tensor | None = field(default=None, metadata=IN_MEMORY)
    parents: Tensor | None = field(default=None, metadata=IN_MEMORY)
    hops: Tensor | None = field(default=None, metadata=IN_MEMORY)
    points: Tensor | None = field(default=None, metadata=IN_MEMORY)

    @property
    def near_uniform(self) -> bool:
        """Whether the entropy is above ``NEAR_UNIFORM``, so that a large spectral gap only means averaging."""
        return self.measures["entropy"] > NEAR_UNIFORM


@dataclass(frozen=True)
class CrossHead:
    """One head whose queries and keys are different tokens, on one example.

    Attributes:
        layer: module name of the attention layer.
        head: number of the head; -1 is the mean of the weights over the heads of the layer.
        neighbors: mean over the queries of the effective number of neighbors.
        weights: (queries, keys) attention weights, float32; None unless the example is stored.
    """

    layer: str
    head: int
    neighbors: float
    weights: Tensor | None = field(default=None, metadata=IN_MEMORY)


@dataclass(frozen=True)
class ModelReport:
    """One model on one example.

    Attributes:
        prediction: name of the predicted class, or the translation; empty if the model predicts neither.
        probability: probability of the prediction; NaN if there is none.
        correct: whether the predicted class is the true class; None if there is no true class.
        probabilities: probability of each class, largest first, at most ten; empty for translations.
        heads: all self-attention heads; the mean of a layer follows its heads if there are several.
        cross: all heads between different tokens: of a decoder to the source, or of queries to the points of a field.
        rollout: (n, n) ``graph.rollout`` over the self-attention layers, float32; None unless the example is stored.
    """

    prediction: str
    probability: float
    correct: bool | None
    probabilities: dict[str, float]
    heads: list[HeadReport]
    cross: list[CrossHead] = field(default_factory=list)
    rollout: Tensor | None = field(default=None, metadata=IN_MEMORY)


@dataclass(frozen=True)
class ExampleReport:
    """One example in every model.

    Attributes:
        title: where the example comes from.
        words: its tokens in readable form; the context points of a field.
        label: name of the true class, or the reference translation, if known.
        models: one report per model.
        stored: whether the tensors of this example are kept.
        source_words: keys of the cross-attention of a translation; None otherwise.
        target_words: queries of the cross-attention of a translation, named by the word that each of them predicts:
            ``words`` shifted by one; None otherwise.
        truncated: whether the text was longer than ``max_length``, so that the model read only its beginning.
        pixels: (C, S, S) uint8 image; None for other examples.
        coordinates: (n, 2) positions of the words of a field with two coordinates; None otherwise.
        query_coordinates: (q, 2) positions of the queries of a field, from dense to sparse surroundings.
    """

    title: str
    words: list[str]
    label: str | None
    models: list[ModelReport]
    stored: bool = True
    source_words: list[str] | None = None
    target_words: list[str] | None = None
    truncated: bool = False
    pixels: Tensor | None = field(default=None, metadata=IN_MEMORY)
    coordinates: Tensor | None = field(default=None, metadata=IN_MEMORY)
    query_coordinates: Tensor | None = field(default=None, metadata=IN_MEMORY)


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of ``count`` values."""

    mean: float
    std: float
    count: int


@dataclass(frozen=True)
class HeadSummary:
    """One head over many examples; the measures of a field model are its neighbors in each evaluation set."""

    layer: str
    head: int
    measures: dict[str, Summary]


@dataclass(frozen=True)
class SplitReport:
    """All heads of every model over ``count`` examples of the split ``name``."""

    name: str
    count: int
    models: list[list[HeadSummary]]


@dataclass(frozen=True)
class AblationCurve:
    """Scores of one model at each probability of removal, with 95 % intervals.

    Attributes:
        probability: mean probability of the prediction that the intact model makes.
        probability_low: lower ends of the intervals of the mean, over the examples of a split, or over the random draws
            if the texts are the user's.
        probability_high: upper ends.
        accuracy: share of correct predictions; None without labels.
        accuracy_low: lower ends of the Wilson intervals.
        accuracy_high: upper ends.
    """

    probability: list[float]
    probability_low: list[float]
    probability_high: list[float]
    accuracy: list[float] | None = None
    accuracy_low: list[float] | None = None
    accuracy_high: list[float] | None = None


@dataclass(frozen=True)
class AblationReport:
    """One model under ablation with each probability of removal in ``p``."""

    p: list[float]
    edges: AblationCurve
    nodes: AblationCurve


@dataclass(frozen=True)
class LengthReport:
    """Measures of one model against the number of tokens, over all heads and several examples.

    A field model has numbers of context points as lengths, and only ``effective_neighbors``.

    Attributes:
        lengths: numbers of tokens; empty if examples cannot be truncated.
        mean_hops: mean hops at each length; None where no token reaches another.
        entropy: mean entropy of the rows at each length, divided by its maximum.
        effective_neighbors: effective number of neighbors at each length.
    """

    lengths: list[int]
    mean_hops: list[Summary | None]
    entropy: list[Summary | None]
    effective_neighbors: list[Summary | None]


@dataclass(frozen=True, repr=False)
class Report:
    """The study of one or several models.

    Attributes:
        title: title of the page.
        kind: "text", "image", "translation", "field" or "batch".
        unit: what the examples are called: "texts", "images", "fields" or "rows".
        version: version of fna-lightning.
        max_length: texts are truncated to this many tokens.
        seed: seed of the ablation.
        models: the studied models; all lists of models below have this order.
        examples: all examples: those of the user first, then those of the split. A translation is two examples: the
            source in the encoder, and the translation in the decoder.
        split: means over the examples of a split; None if none was studied.
        ablation: one report per model; empty if the models predict nothing that could be scored.
        lengths: one report per model.
    """

    title: str
    kind: str
    unit: str
    version: str
    max_length: int
    seed: int
    models: list[ModelInfo]
    examples: list[ExampleReport]
    split: SplitReport | None
    ablation: list[AblationReport]
    lengths: list[LengthReport]

    def __repr__(self) -> str:
        models = ", ".join(model.label for model in self.models)
        return f"Report({self.kind}: {len(self.examples)} example{'s' * (len(self.examples) != 1)}, models {models})"

    def example(self, index: int) -> ExampleReport:
        """Return the example with this index; negative indices count from the end."""
        if not -len(self.examples) <= index < len(self.examples):
            raise UsageError(f"there is no example {index}; the report has {len(self.examples)}, numbered from 0")
        return self.examples[index]

    def to_json(self, path: str | Path) -> None:
        """Write all numbers to a file."""
        text = json.dumps(to_json(self), indent=2, ensure_ascii=False, allow_nan=False)
        write_text(Path(path), text + "\n")

    def to_html(self, path: str | Path) -> None:
        """Write the page to a file; it needs no network."""
        from fna_lightning.analysis.page import render_page

        write_text(Path(path), render_page(self))

    def show(self) -> None:
        """Show the page: in the output of a notebook, otherwise in the browser."""
        from fna_lightning.analysis.display import show

        show(self)

    def _repr_html_(self) -> str:
        from fna_lightning.analysis.display import notebook_html

        return notebook_html(self)


def to_json(value: Any) -> Any:
    """Return a report, or a part of one, in the types of JSON: NaN and infinity become null."""
    if is_dataclass(value) and not isinstance(value, type):
        result = {part.name: to_json(getattr(value, part.name)) for part in fields(value) if part.metadata != IN_MEMORY}
        return result | {"near_uniform": value.near_uniform} if isinstance(value, HeadReport) else result
    if isinstance(value, dict):
        return {str(key): to_json(content) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(content) for content in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
