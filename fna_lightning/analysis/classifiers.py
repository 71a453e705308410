"""Studied classifiers of texts and images."""

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fna_lightning.analysis.measurements import head_reports
from fna_lightning.analysis.models import Example, ModelInput, Scorer, StudiedModel, View, encoded, pad_ids
from fna_lightning.analysis.report import ModelReport
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.plotting.images import grid_side
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.text.codec import TextCodec

BATCH = 16
# fewest ablated forward passes behind a point of the ablation curve
DRAWS = 32


class TextModelCodec(Protocol):
    """What a text model needs of its codec: ``TextCodec``, or a tokenizer of transformers."""

    @property
    def tokenizer(self) -> str: ...
    @property
    def class_names(self) -> Sequence[str]: ...
    @property
    def max_length(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def words(self, ids: list[int]) -> list[str]: ...
    def spans(self, text: str) -> list[str]: ...


class Classifier(StudiedModel):
    """A trained classifier: its prediction is a class."""

    def probabilities(self, inputs: list[ModelInput]) -> Tensor:
        """Return the (B, C) probabilities of the classes."""
        with torch.inference_mode():
            return self.task(*self.batch(inputs)).softmax(dim=-1)

    def maps(self, model_input: ModelInput) -> dict[str, AttentionMap]:
        batch = self.batch([model_input])

        def run() -> dict[str, Tensor]:
            self.task(*batch)
            return {"": batch[1]} if len(batch) > 1 else {}

        return self.self_attention(attention_maps(self.task, run))

    def views(self, example: Example) -> list[View]:
        def measure(model: Classifier) -> ModelReport:
            probability, number = model.probabilities([example.input])[0].max(dim=-1)
            prediction = model.codec.class_names[int(number)]
            return ModelReport(prediction, probability.item(), head_reports(model.maps(example.input)))

        label = None if example.label is None else self.codec.class_names[example.label]
        return [View(example.title, example.words, measure, label)]

    def scorer(self, examples: list[Example]) -> Scorer:
        """Score the probability of the class predicted without ablation, and the accuracy if all have labels."""
        # ablation is random, so a small number of examples is ablated several times
        examples = examples * max(1, DRAWS // len(examples))
        inputs = [example.input for example in examples]
        intact = self._batched_probabilities(inputs).argmax(dim=-1)
        labels = None
        if all(example.label is not None for example in examples):
            labels = torch.tensor([example.label for example in examples])

        def score() -> tuple[float, float | None]:
            probabilities = self._batched_probabilities(inputs)
            kept = probabilities.gather(1, intact[:, None]).mean().item()
            if labels is None:
                return kept, None
            return kept, (probabilities.argmax(dim=-1) == labels).double().mean().item()

        return score

    def _batched_probabilities(self, inputs: list[ModelInput]) -> Tensor:
        """Return probabilities in the order of ``inputs``, computed shortest first to save padding."""
        order = sorted(range(len(inputs)), key=lambda index: len(inputs[index]))
        batches = [
            self.probabilities([inputs[index] for index in order[start : start + BATCH]])
            for start in range(0, len(order), BATCH)
        ]
        inverse = torch.empty(len(order), dtype=torch.long)
        inverse[torch.tensor(order)] = torch.arange(len(order))
        return torch.cat(batches)[inverse]


class TextModel(Classifier):
    """A trained text classifier, or a model of transformers."""

    codec: TextModelCodec

    @classmethod
    def read_codec(cls, checkpoint: dict[str, Any], path: str | Path) -> TextCodec:
        return TextCodec.from_checkpoint(checkpoint, path)

    @property
    def comparable_key(self) -> object:
        return self.codec.tokenizer

    @property
    def run_folder(self) -> Path | None:
        # a model of transformers does not come from a run
        return super().run_folder if isinstance(self.codec, TextCodec) else None

    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        return pad_ids(inputs)

    def examples(self, texts: Sequence[str], images: Sequence[str], max_length: int) -> list[Example]:
        if images:
            raise UsageError(f"--image {images[0]!r}: {self.path} is a text model; pass texts by --text")
        limit = min(max_length, self.codec.max_length)
        return [
            Example(
                f"text {number}",
                encoded(text, number, self.codec.encode(text)[:limit]),
                self.codec.spans(text)[:limit],
            )
            for number, text in enumerate(texts, start=1)
        ]

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        tokens, label = item
        ids = [int(token) for token in tokens[:max_length]]
        return Example(title, ids, self.codec.words(ids), label) if ids else None


class ImageModel(Classifier):
    """A trained image classifier; its tokens are the patches of a grid, named by row and column."""

    codec: ImageCodec
    unit: ClassVar[str] = "images"
    option: ClassVar[str] = "--image"
    truncatable: ClassVar[bool] = False

    @classmethod
    def read_codec(cls, checkpoint: dict[str, Any], path: str | Path) -> ImageCodec:
        return ImageCodec.from_checkpoint(checkpoint, path)

    @property
    def comparable_key(self) -> object:
        return self.codec.channels, self.codec.image_size, tuple(self.token_names)

    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        return (torch.stack(inputs),)

    def examples(self, texts: Sequence[str], images: Sequence[str], max_length: int) -> list[Example]:
        if texts:
            raise UsageError(f"--text {texts[0]!r}: {self.path} is an image model; pass images by --image")
        pixels = [torch.from_numpy(self.codec.read(file).copy()) for file in images]
        return [Example(Path(file).name, image, self.token_names) for file, image in zip(images, pixels, strict=True)]

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        pixels, labels = item
        return Example(title, pixels[0], self.token_names, int(labels[0]))

    def views(self, example: Example) -> list[View]:
        (view,) = super().views(example)
        return [View(view.title, view.words, view.measure, view.label, example.input)]

    @cached_property
    def token_names(self) -> list[str]:
        """The names of the tokens: "CLS" if there is one, then row and column of each patch, from 1."""
        blank = torch.zeros(self.codec.channels, self.codec.image_size, self.codec.image_size, dtype=torch.uint8)
        tokens = next(iter(self.maps(blank).values())).weights.size(-1)
        side, first = grid_side(tokens)
        return ["CLS"] * first + [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
