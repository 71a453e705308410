"""Studied classifiers of texts and images."""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from fna_lightning.analysis.heads import head_reports, rolled_out
from fna_lightning.analysis.models import Example, ModelInput, Scorer, Scores, StudiedModel, UserInputs, View, encoded
from fna_lightning.analysis.report import ModelReport
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.plotting.images import grid_side
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.image.codec import ImageCodec
from fna_lightning.tasks.text.codec import TextCodec

BATCH = 16
# fewest ablated forward passes behind a point of the ablation curve
DRAWS = 32
# most classes whose probabilities are reported
CLASSES = 10


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
    """A trained classifier: its prediction is a class. A model without classes has an empty list of class names."""

    @abstractmethod
    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        """Return the arguments of the model's forward pass."""

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
        label = None if example.label is None else self.codec.class_names[example.label]
        return [View(example.title, example.words, lambda model, stored: model.report(example, stored), label)]

    def report(self, example: Example, stored: bool) -> ModelReport:
        """Return the prediction and the heads of this model on one example."""
        maps = self.maps(example.input)
        heads, flow = head_reports(maps, stored), rolled_out(maps, stored)
        names = self.codec.class_names
        if not names:
            return ModelReport("", float("nan"), None, {}, heads, rollout=flow)
        probabilities = self.probabilities([example.input])[0]
        values, numbers = probabilities.topk(min(CLASSES, len(names)))
        best = {names[number]: value for number, value in zip(numbers.tolist(), values.tolist(), strict=True)}
        correct = None if example.label is None else numbers[0].item() == example.label
        return ModelReport(names[int(numbers[0])], values[0].item(), correct, best, heads, rollout=flow)

    def scorer(self, examples: list[Example]) -> Scorer | None:
        """Score the probability of the class predicted without ablation, and the accuracy if all have labels."""
        if not self.codec.class_names:
            return None
        # ablation is random, so a small number of examples is ablated several times
        draws = max(1, DRAWS // len(examples))
        inputs = [example.input for example in examples] * draws
        intact = self._batched_probabilities(inputs).argmax(dim=-1)
        labels = [example.label for example in examples] * draws
        known = [label for label in labels if label is not None]

        def score() -> Scores:
            probabilities = self._batched_probabilities(inputs)
            kept = probabilities.gather(1, intact[:, None]).reshape(draws, len(examples))
            if len(known) < len(labels):
                return Scores(kept, None)
            correct = probabilities.argmax(dim=-1) == torch.tensor(known)
            return Scores(kept, correct.reshape(draws, len(examples)))

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

    @property
    def comparable_key(self) -> object:
        return self.codec.tokenizer

    @property
    def run_folder(self) -> Path | None:
        # a model of transformers does not come from a run
        return super().run_folder if isinstance(self.codec, TextCodec) else None

    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        return pad_tokens(inputs)

    def examples(self, inputs: UserInputs, max_length: int) -> list[Example]:
        limit = min(max_length, self.codec.max_length)
        examples = []
        for number, text in enumerate(inputs.texts, start=1):
            ids = encoded(text, number, self.codec.encode(text))
            words = self.codec.spans(text)[:limit]
            examples.append(Example(f"text {number}", ids[:limit], words, truncated=len(ids) > limit))
        return examples

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        tokens, label = item
        ids = [int(token) for token in tokens[:max_length]]
        cut = len(tokens) > max_length
        return Example(title, ids, self.codec.words(ids), label, truncated=cut) if ids else None


class ImageModel(Classifier):
    """A trained image classifier; its tokens are the patches of a grid, named by row and column."""

    codec: ImageCodec
    kind: ClassVar[str] = "image"
    unit: ClassVar[str] = "images"
    argument: ClassVar[str] = "images"
    option: ClassVar[str] = "--image"
    truncatable: ClassVar[bool] = False

    @property
    def comparable_key(self) -> object:
        return self.codec.channels, self.codec.image_size, tuple(self.token_names)

    def batch(self, inputs: list[ModelInput]) -> tuple[Tensor, ...]:
        return (torch.stack(inputs),)

    def examples(self, inputs: UserInputs, max_length: int) -> list[Example]:
        examples = []
        for number, image in enumerate(inputs.images, start=1):
            title = f"image {number}" if isinstance(image, Tensor) else Path(image).name
            examples.append(Example(title, self.pixels(image), self.token_names))
        return examples

    def pixels(self, image: str | Path | Tensor) -> Tensor:
        """Return the (C, S, S) uint8 pixels of an image file, or of a tensor of that shape."""
        if not isinstance(image, Tensor):
            return torch.from_numpy(self.codec.read(image).copy())
        shape = (self.codec.channels, self.codec.image_size, self.codec.image_size)
        if tuple(image.shape) != shape or image.dtype != torch.uint8:
            raise UsageError(
                f"an image tensor must have the shape {shape} and the type torch.uint8, got {tuple(image.shape)} and "
                f"{image.dtype}; resize it, or pass the path of a file"
            )
        return image

    def split_example(self, item: Any, title: str, max_length: int) -> Example | None:
        pixels, labels = item
        return Example(title, pixels[0], self.token_names, int(labels[0]))

    def views(self, example: Example) -> list[View]:
        (view,) = super().views(example)
        return [View(view.title, view.words, view.measure, view.label, {"pixels": example.input})]

    @cached_property
    def token_names(self) -> list[str]:
        """The names of the tokens: "CLS" if there is one, then row and column of each patch, from 1."""
        blank = torch.zeros(self.codec.channels, self.codec.image_size, self.codec.image_size, dtype=torch.uint8)
        tokens = next(iter(self.maps(blank).values())).weights.size(-1)
        side, first = grid_side(tokens)
        return ["CLS"] * first + [f"{row + 1},{column + 1}" for row in range(side) for column in range(side)]
