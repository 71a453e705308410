"""What a trained text classifier makes of texts."""

from collections.abc import Iterator
from typing import Any

import torch

from fna_lightning.errors import UsageError


def classify(task: Any, codec: Any, texts: list[str]) -> Iterator[dict[str, Any]]:
    """Yield label, probability and, if there is something to say, a note for each text."""
    for number, text in enumerate(texts, start=1):
        if not isinstance(text, str):
            raise UsageError(f"text {number} is {text!r} and not a text; leave it out, or give a str")
    if not texts:
        return
    encoded = [codec.encode(text) for text in texts]
    read = [tokens[: codec.max_length] for tokens in encoded]
    lengths = torch.tensor([len(tokens) for tokens in read])
    tokens = torch.zeros(len(read), max(1, int(lengths.max())), dtype=torch.long)
    for row, ids in zip(tokens, read, strict=True):
        row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
    with torch.inference_mode():
        best, classes = task(tokens, lengths).softmax(dim=-1).max(dim=-1)
    for every, probability, number in zip(encoded, best.tolist(), classes.tolist(), strict=True):
        if not every:
            yield {"label": None, "probability": None, "note": "is empty: there is nothing to classify"}
            continue
        answer = {"label": codec.class_names[number], "probability": probability}
        if len(every) > codec.max_length:
            answer["note"] = f"has {len(every)} tokens; the model reads the first {codec.max_length}"
        yield answer
