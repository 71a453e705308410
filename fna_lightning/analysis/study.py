"""The numbers of a report: each text in depth, a split in the mean, and how both bear damage and length."""

import math
from collections import defaultdict
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from fna_lightning.analysis.models import Example, Subject
from fna_lightning.graph import align, diffusion_map, measure, path_lengths, path_parents, spectrum
from fna_lightning.graph.ablation import KINDS
from fna_lightning.introspection.ablation import ablated

BATCH = 16
PROBABILITIES = tuple(step / 10 for step in range(11))
# fewest damaged readings behind a point of the ablation curve
DRAWS = 32
# texts whose paths are measured at each length
TEXTS_OF_A_LENGTH = 4

Tick = Callable[[], None]


def study_text(subject: Subject, example: Example) -> dict[str, Any]:
    """Return every head of one text in depth, and what the model says of the text."""
    probability, number = subject.probabilities([example.ids])[0].max(dim=-1)
    heads = []
    for layer, found in subject.maps(example.ids).items():
        values = measure(found.weights, found.lengths)
        heads += [
            {
                "layer": layer,
                "head": head,
                "measures": {name: value[0, head].item() for name, value in values.items()},
                **walk_of(found.weights[0, head].double()),
            }
            for head in range(found.weights.size(1))
        ]
    return {
        "prediction": subject.codec.class_names[int(number)],
        "probability": probability.item(),
        "heads": heads,
    }


def align_maps(texts: list[dict[str, Any]]) -> None:
    """Turn the diffusion maps of one text in several models onto those of the first, head by head."""
    for other in texts[1:]:
        for mine, theirs in zip(texts[0]["heads"], other["heads"], strict=False):
            if mine["points"] is not None and theirs["points"] is not None:
                theirs["points"] = align(theirs["points"], mine["points"])


def walk_of(walk: Tensor) -> dict[str, Any]:
    """Return what the page draws of one (n, n) walk."""
    return {
        "spectrum": spectrum(walk).abs().tolist(),
        "weights": walk,
        "parents": path_parents(walk),
        "hops": path_lengths(walk).hops,
        "points": _points(walk),
    }


def _points(walk: Tensor) -> Tensor | None:
    """Return two diffusion coordinates of each token; None for a walk that has no map."""
    if len(walk) < 3:
        return None
    try:
        return diffusion_map(walk, symmetrise=True).coordinates
    except ValueError:
        return None


def study_split(subject: Subject, examples: list[Example], tick: Tick) -> list[dict[str, Any]]:
    """Return mean and standard deviation of every measure of every head over many texts."""
    found: dict[tuple[str, int], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for example in examples:
        for layer, one in subject.maps(example.ids).items():
            for name, values in measure(one.weights, one.lengths).items():
                for head, value in enumerate(values[0].tolist()):
                    if math.isfinite(value):
                        found[layer, head][name].append(value)
        tick()
    return [
        {"layer": layer, "head": head, "measures": {name: _summary(values) for name, values in measures.items()}}
        for (layer, head), measures in found.items()
    ]


def _summary(values: list[float]) -> dict[str, float]:
    column = torch.tensor(values, dtype=torch.float64)
    return {"mean": column.mean().item(), "std": column.std(unbiased=False).item(), "count": len(values)}


def study_ablation(subject: Subject, examples: list[Example], seed: int, tick: Tick) -> dict[str, Any]:
    """Return, for edges and nodes and each p, the accuracy and the probability of the class chosen without damage.

    Accuracy is None when a text has no label. Every model and every p starts from the same seed.
    """
    # damage is drawn at random: a few texts are damaged several times
    examples = examples * max(1, DRAWS // len(examples))
    sequences = [example.ids for example in examples]
    chosen = _in_batches(subject, sequences).argmax(dim=-1)
    labels = None
    if all(example.label is not None for example in examples):
        labels = torch.tensor([example.label for example in examples])
    result: dict[str, Any] = {"p": list(PROBABILITIES)}
    for kind in KINDS:
        kept: list[float] = []
        accuracy: list[float] = []
        for p in PROBABILITIES:
            with ablated(subject.task, p, kind, torch.Generator().manual_seed(seed)):
                probabilities = _in_batches(subject, sequences)
            kept.append(probabilities.gather(1, chosen[:, None]).mean().item())
            if labels is not None:
                accuracy.append((probabilities.argmax(dim=-1) == labels).double().mean().item())
            tick()
        result[kind] = {"probability": kept, "accuracy": accuracy if labels is not None else None}
    return result


def _in_batches(subject: Subject, sequences: list[list[int]]) -> Tensor:
    """Return probabilities in the order of ``sequences``, computed shortest first so that little is padded."""
    order = sorted(range(len(sequences)), key=lambda place: len(sequences[place]))
    parts = [
        subject.probabilities([sequences[place] for place in order[start : start + BATCH]])
        for start in range(0, len(order), BATCH)
    ]
    result = torch.cat(parts)
    back = torch.empty(len(order), dtype=torch.long)
    back[torch.tensor(order)] = torch.arange(len(order))
    return result[back]


def growth_lengths(examples: list[Example], max_length: int) -> list[int]:
    """Return the sequence lengths at which paths are measured: 50, 100, ..., or fifths of a shorter limit."""
    longest = min(max_length, max(len(example.ids) for example in examples))
    step = 50 if longest >= 250 else max(1, longest // 5)
    return list(range(step, longest + 1, step))


def study_growth(subject: Subject, examples: list[Example], lengths: list[int], tick: Tick) -> dict[str, Any]:
    """Return mean hops, over all heads, of texts cut to each length."""
    means: list[float | None] = []
    for length in lengths:
        long_enough = [example for example in examples if len(example.ids) >= length][:TEXTS_OF_A_LENGTH]
        values = [
            path_lengths(found.weights, found.lengths).mean
            for example in long_enough
            for found in subject.maps(example.ids[:length]).values()
        ]
        finite = torch.cat([value.flatten() for value in values])
        finite = finite[finite.isfinite()]
        means.append(finite.mean().item() if len(finite) else None)
        tick()
    return {"lengths": lengths, "mean_hops": means}
