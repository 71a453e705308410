"""The numbers of a report about a translator: source and translation as graphs, and where one looks in the other."""

import base64
import io
import math
from typing import Any

import torch

from fna_lightning.analysis.models import Example
from fna_lightning.analysis.study import PROBABILITIES, walk_of
from fna_lightning.analysis.translation_models import TranslationSubject
from fna_lightning.graph import measure
from fna_lightning.graph.ablation import KINDS
from fna_lightning.introspection.ablation import ablated
from fna_lightning.introspection.maps import AttentionMap
from fna_lightning.plotting.graphs import draw_alignment
from fna_lightning.search import Hypothesis
from fna_lightning.tasks.translation.codec import END

# pairs whose translation is watched while attention is damaged
ABLATED = 16


def study_source(subject: TranslationSubject, example: Example, _: Hypothesis) -> dict[str, Any]:
    """Return the encoder's heads of one source in depth, and what the model makes of the source."""
    said = subject.translate([example.ids])[0]
    return {
        "prediction": subject.codec.decode(said.tokens),
        "probability": math.exp(said.log_probability),
        "heads": _heads(subject.maps(example.ids)),
    }


def study_target(subject: TranslationSubject, example: Example, said: Hypothesis) -> dict[str, Any]:
    """Return the decoder's heads while ``said`` is said, its probability, and where it looks in the source."""
    found = subject.pair_maps(example.ids, said.tokens)
    rows = subject.said_probabilities([example.ids], [said.tokens])[0]
    chances = rows.gather(1, torch.tensor([*said.tokens, END])[:, None])
    own = {name: one for name, one in subject.self_maps(found).items() if ".decoder." in name}
    layers = [one.weights[0].mean(dim=0) for name, one in found.items() if name.endswith(".cross_attn")]
    picture = io.BytesIO()
    draw_alignment(layers, example.words, subject.codec.target_words([*said.tokens, END]), picture)
    return {
        "prediction": subject.codec.decode(said.tokens),
        "probability": chances.log().sum().exp().item(),
        "heads": _heads(own),
        "cross": "data:image/png;base64," + base64.b64encode(picture.getvalue()).decode("ascii"),
    }


def _heads(maps: dict[str, AttentionMap]) -> list[dict[str, Any]]:
    heads = []
    for layer, found in maps.items():
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
    return heads


def study_pair_ablation(subject: TranslationSubject, examples: list[Example], seed: int) -> dict[str, Any]:
    """Return, for edges and nodes and each p, what is left of the translation made without damage.

    "accuracy" is the share of its tokens that are still the likeliest ones, "probability" their mean probability, each
    given the tokens before it. Every model and every p starts from the same seed.
    """
    sources = [example.ids for example in examples]
    said = [one.tokens for one in subject.translate(sources)]
    wanted = torch.cat([torch.tensor([*one, END]) for one in said])
    result: dict[str, Any] = {"p": list(PROBABILITIES)}
    for kind in KINDS:
        kept, accuracy = [], []
        for p in PROBABILITIES:
            with ablated(subject.task, p, kind, torch.Generator().manual_seed(seed)):
                rows = torch.cat(subject.said_probabilities(sources, said))
            kept.append(rows.gather(1, wanted[:, None]).mean().item())
            accuracy.append((rows.argmax(dim=-1) == wanted).double().mean().item())
        result[kind] = {"probability": kept, "accuracy": accuracy}
    return result
