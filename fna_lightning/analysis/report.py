"""The results of a study: one schema for results.json, the HTML page and the figures.

results.json holds all fields except those declared by ``page_only``, which only the page and the figures need.
"""

import base64
import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, is_dataclass
from io import BytesIO
from typing import Any

import numpy as np
from torch import Tensor

# marks a token without a parent in the page's unsigned integers
NO_PARENT = 0xFFFF


def page_only(encode: Callable[[Any], Any] | None = None) -> dict[str, Any]:
    """Return the metadata of a field that is not in results.json.

    ``encode`` returns the JSON value of the field for the page; None leaves the field out of the page too.
    """
    return {"page_only": True, "encode": encode}


def encode_weights(weights: Tensor) -> str:
    """Return base64 of little-endian float32, a tenth of the size of decimal digits."""
    return base64.b64encode(weights.numpy().astype("<f4").tobytes()).decode("ascii")


def encode_parents(parents: Tensor) -> str:
    """Return base64 of little-endian uint16, with ``NO_PARENT`` for -1."""
    array = parents.numpy()
    return base64.b64encode(np.where(array < 0, NO_PARENT, array).astype("<u2").tobytes()).decode("ascii")


def encode_png(png: bytes | None) -> str | None:
    """Return a PNG file as a data URL, which needs no network."""
    return None if png is None else "data:image/png;base64," + base64.b64encode(png).decode("ascii")


def encode_pixels(pixels: Tensor | None) -> str | None:
    """Return (C, S, S) pixels as the data URL of a PNG."""
    from PIL import Image

    if pixels is None:
        return None
    file = BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()).save(file, format="PNG")
    return encode_png(file.getvalue())


def encode_points(points: Tensor | None) -> Any:
    """Return (n, 2) coordinates as lists."""
    return None if points is None else points.tolist()


@dataclass(frozen=True)
class ModelInfo:
    """A studied model: its label in tables and figures, its attention, and the name of its checkpoint file."""

    label: str
    attention: str
    checkpoint: str


@dataclass(frozen=True)
class HeadReport:
    """One head on one example.

    Attributes:
        layer: module name of the attention layer.
        head: number of the head.
        measures: value of each of ``graph.MEASURES``.
        spectrum: moduli of the eigenvalues, largest first.
        weights: (n, n) attention weights.
        parents: (n, n) result of ``graph.path_parents``.
        hops: (n, n) hops of ``graph.path_lengths``; the page computes them from ``parents``.
        points: (n, 2) diffusion coordinates; None if there is no diffusion map.
    """

    layer: str
    head: int
    measures: dict[str, float]
    spectrum: list[float]
    weights: Tensor = field(metadata=page_only(encode_weights))
    parents: Tensor = field(metadata=page_only(encode_parents))
    hops: Tensor = field(metadata=page_only())
    points: Tensor | None = field(metadata=page_only(encode_points))


@dataclass(frozen=True)
class ModelReport:
    """One model on one example.

    Attributes:
        prediction: name of the predicted class, or the translation.
        probability: probability of the prediction.
        heads: all self-attention heads.
        cross_attention: PNG of the cross-attention, for a translation.
    """

    prediction: str
    probability: float
    heads: list[HeadReport]
    cross_attention: bytes | None = field(metadata=page_only(encode_png), default=None)


@dataclass(frozen=True)
class ExampleReport:
    """One example in depth, in every model.

    Attributes:
        title: where the example comes from.
        words: its tokens in readable form.
        label: name of the true class, if known.
        models: one report per model.
        pixels: (C, S, S) image, None for texts.
    """

    title: str
    words: list[str]
    label: str | None
    models: list[ModelReport]
    pixels: Tensor | None = field(metadata=page_only(encode_pixels), default=None)


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation of a measure over ``count`` examples."""

    mean: float
    std: float
    count: int


@dataclass(frozen=True)
class HeadSummary:
    """One head over many examples."""

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
    """Mean probability of the intact prediction at each p, and accuracy; accuracy is None without labels."""

    probability: list[float]
    accuracy: list[float] | None


@dataclass(frozen=True)
class AblationReport:
    """One model under ablation with each probability of removal in ``p``."""

    p: list[float]
    edges: AblationCurve
    nodes: AblationCurve


@dataclass(frozen=True)
class GrowthReport:
    """Mean hops of one model, over all heads, at each sequence length; None where no pair is connected."""

    lengths: list[int]
    mean_hops: list[float | None]


@dataclass(frozen=True)
class Report:
    """Everything ``analyze`` writes.

    Attributes:
        title: title of the page.
        version: version of fna-lightning.
        max_length: texts are truncated to this many tokens.
        seed: seed of the ablation.
        models: the studied models; all lists of models below have this order.
        examples: examples in depth.
        split: means over a split, None if none was studied.
        ablation: one report per model.
        growth: path length against sequence length, one report per model.
    """

    title: str
    version: str
    max_length: int
    seed: int
    models: list[ModelInfo]
    examples: list[ExampleReport]
    split: SplitReport | None
    ablation: list[AblationReport]
    growth: list[GrowthReport]


def to_json(value: Any, *, page: bool = False) -> Any:
    """Return ``value`` in the types of JSON: NaN and infinity become null.

    Args:
        value: a report, or a part of one.
        page: whether the fields declared by ``page_only`` are included.
    """
    if is_dataclass(value) and not isinstance(value, type):
        result = {}
        for part in fields(value):
            content = getattr(value, part.name)
            if not part.metadata.get("page_only"):
                result[part.name] = to_json(content, page=page)
            elif page and part.metadata["encode"] is not None:
                result[part.name] = to_json(part.metadata["encode"](content), page=page)
        return result
    if isinstance(value, dict):
        return {str(key): to_json(content, page=page) for key, content in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(content, page=page) for content in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value
