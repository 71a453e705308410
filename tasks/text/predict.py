"""Classify texts with a trained model."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.text.codec import TextCodec


def classify(model: nn.Module, codec: TextCodec, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield the label and the probability of each text, with a note if the text is empty or was truncated.

    Args:
        model: maps (B, N) token ids and (B,) lengths to (B, C) logits; in evaluation mode.
        codec: the codec of the model.
        texts: the texts of one batch.
    """
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise UsageError(f"text {number} is {text!r}, not a string; leave it out, or give a str")
    if not texts:
        return
    encoded = [codec.encode(text) for text in texts]
    tokens, lengths = pad_tokens([ids[: codec.max_length] for ids in encoded])
    with torch.inference_mode():
        probabilities, classes = model(tokens, lengths).softmax(dim=-1).max(dim=-1)
    for ids, probability, label in zip(encoded, probabilities.tolist(), classes.tolist(), strict=True):
        if not ids:
            yield {"label": None, "probability": None, "note": "is empty and cannot be classified"}
            continue
        answer = {"label": codec.class_names[label], "probability": probability}
        if len(ids) > codec.max_length:
            answer["note"] = f"has {len(ids)} tokens; the model reads the first {codec.max_length}"
        yield answer
