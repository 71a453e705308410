"""Synthetic reports, for tests of figures and of the HTML page: random weights with their real graph measures."""

from collections.abc import Sequence

import torch
from torch import Tensor

from fna_lightning.analysis.report import (
    AblationCurve,
    AblationReport,
    CrossHead,
    ExampleReport,
    HeadReport,
    HeadSummary,
    LengthReport,
    ModelInfo,
    ModelReport,
    Report,
    SplitReport,
    Summary,
)
from fna_lightning.graph import (
    diffusion_map,
    laplacian_spectrum,
    measure,
    path_lengths,
    path_parents,
    rollout,
    spectrum,
)

LAYERS = {"layers.0.self_attn": "layer 1", "layers.1.self_attn": "layer 2"}
CROSS_LAYER = "decoder.0.cross_attn"


def random_weights(*shape: int, sharpness: float = 3.0, seed: int = 0) -> Tensor:
    """Return row-stochastic float32 matrices."""
    return torch.softmax(sharpness * torch.randn(*shape, generator=torch.Generator().manual_seed(seed)), dim=-1)


def head_report(layer: str, head: int, weights: Tensor, *, stored: bool = True) -> HeadReport:
    """Return the report of a head with these (n, n) weights."""
    double = weights.double()
    measures = {name: value.item() for name, value in measure(double).items()}
    if not stored:
        return HeadReport(layer, head, measures)
    return HeadReport(
        layer,
        head,
        measures,
        spectrum(double).abs().tolist(),
        laplacian_spectrum(double).tolist(),
        weights,
        path_parents(double),
        path_lengths(double).hops,
        diffusion_map(double, symmetrise=True).coordinates[:, :2] if len(weights) > 2 else None,
    )


def model_report(n: int, heads: int, *, stored: bool = True, seed: int = 0, correct: bool | None = True) -> ModelReport:
    """Return the report of a model with two layers; head 0 of the first layer is uniform."""
    weights = random_weights(len(LAYERS), heads, n, n, seed=seed)
    weights[0, 0] = 1 / n
    reports = []
    for layer, matrices in zip(LAYERS, weights, strict=True):
        reports += [head_report(layer, head, matrix, stored=stored) for head, matrix in enumerate(matrices)]
        if heads > 1:
            reports.append(head_report(layer, -1, matrices.mean(dim=0), stored=stored))
    mixed = rollout(weights.mean(dim=1).double()).float() if stored else None
    return ModelReport("positive", 0.9, correct, {"positive": 0.9, "negative": 0.1}, reports, [], mixed)


def text_report(words: Sequence[str], *, models: int = 2, heads: int = 2, unstored: int = 1) -> Report:
    """Return the report of a text in several models, followed by examples without matrices."""
    texts = [list(words), *([f"word{place}" for place in range(12)] for _ in range(unstored))]
    examples = [
        ExampleReport(
            f"text {number + 1}",
            text,
            "positive",
            [
                model_report(len(text), heads, stored=number == 0, seed=10 * number + model, correct=model == 0)
                for model in range(models)
            ],
            stored=number == 0,
        )
        for number, text in enumerate(texts)
    ]
    return _report("text", models, examples)


def image_report(side: int = 4) -> Report:
    """Return the report of a gray image of ``side`` x ``side`` patches and a class token."""
    words = ["CLS", *(f"patch {row},{column}" for row in range(side) for column in range(side))]
    pixels = (torch.arange(16 * side * side).view(1, 4 * side, 4 * side) % 256).to(torch.uint8)
    return _report("image", 1, [ExampleReport("image 1", words, "7", [model_report(len(words), 2)], pixels=pixels)])


def translation_report() -> Report:
    """Return the report of a translation: the source in the encoder, then the translation in the decoder."""
    source, target = ["twenty", "one"], ["ein", "und", "zwanzig"]
    encoder = ExampleReport("source 1", source, None, [model_report(2, 2, correct=None)])
    decoder = model_report(3, 2, correct=None)
    weights = random_weights(2, 3, 2)
    cross = [CrossHead(CROSS_LAYER, head, 1.5, weights[head]) for head in range(2)]
    cross.append(CrossHead(CROSS_LAYER, -1, 1.5, weights.mean(dim=0)))
    translated = ModelReport(" ".join(target), 0.8, None, {}, decoder.heads, cross, decoder.rollout)
    return _report(
        "translation", 1, [encoder, ExampleReport("translation 1", target, None, [translated], True, source)]
    )


def field_report(n: int = 30, queries: int = 3) -> Report:
    """Return the report of a field model: only weights between queries and points."""
    weights = random_weights(2, queries, n)
    cross = [CrossHead("layers.0", head, 4.0, weights[head]) for head in range(2)]
    generator = torch.Generator().manual_seed(1)
    example = ExampleReport(
        "field 1",
        [f"point {place + 1}" for place in range(n)],
        None,
        [ModelReport("", float("nan"), None, {}, [], cross)],
        coordinates=torch.rand(n, 2, generator=generator),
        query_coordinates=torch.rand(queries, 2, generator=generator),
    )
    return _report("field", 1, [example])


def _report(kind: str, models: int, examples: list[ExampleReport]) -> Report:
    layers = LAYERS | {CROSS_LAYER: "decoder layer 1 (cross)", "layers.0": "layer 1"}
    infos = [ModelInfo(f"model {letter}", "DotProduct()", "best.ckpt", layers) for letter in "abcdef"[:models]]
    summaries = [
        [HeadSummary(head.layer, head.head, {name: Summary(value, 0.1, 4) for name, value in head.measures.items()})]
        for model in examples[0].models
        for head in model.heads[:1]
    ]
    curve = AblationCurve([0.9, 0.5], [0.8, 0.4], [1.0, 0.6], [0.8, 0.5], [0.6, 0.3], [0.9, 0.7])
    length = [Summary(1.5, 0.1, 3), Summary(2.0, 0.2, 3)]
    return Report(
        title="Attention of model a",
        kind=kind,
        unit="texts",
        version="0",
        max_length=64,
        seed=0,
        models=infos,
        examples=examples,
        split=SplitReport("test", 4, summaries) if summaries else None,
        ablation=[AblationReport([0.0, 1.0], curve, curve) for _ in infos],
        lengths=[LengthReport([8, 16], length, length, length) for _ in infos],
    )
