"""What is studied: a trained model, and the texts it reads."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self

import lightning as L
import torch
from jsonargparse import ArgumentParser
from torch import Tensor, nn

from fna_lightning.attention import Attention
from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.config.messages import parser_message
from fna_lightning.config.run_config import checked_config, read_settings
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_layers, attention_maps
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.text.codec import TextCodec
from fna_lightning.training.run_folder import run_folder_of
from fna_lightning.utils.limits import limit_jsonargparse

# what comes before the folder of a transformers model
HF = "hf:"


class Codec(Protocol):
    """How a text becomes token ids, and what the answers are called: ``TextCodec``, or transformers' tokenizer."""

    @property
    def tokenizer(self) -> str: ...
    @property
    def class_names(self) -> Sequence[str]: ...
    @property
    def max_length(self) -> int: ...
    def encode(self, text: str) -> list[int]: ...
    def words(self, ids: list[int]) -> list[str]: ...
    def spans(self, text: str) -> list[str]: ...


# what a model reads of one example: the ids of a text's tokens, or the (C, S, S) pixels of an image
Reading = Any


@dataclass(frozen=True)
class Example:
    """One text as token ids, or one image as pixels, and its tokens as a person names them; its label if it has one."""

    title: str
    ids: Reading
    words: list[str]
    label: int | None = None


@dataclass(frozen=True)
class Subject:
    """A trained model with its codec.

    Attributes:
        label: what it is called in tables and on the page.
        path: its checkpoint.
        trust: whether the checkpoint and its run folder may name any function or class.
    """

    label: str
    path: Path
    task: nn.Module
    # a ``Codec`` here, another for those who read something else
    codec: Any
    trust: bool = False

    # whether an example can be cut short, to measure how paths grow with its length
    cuts = True

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> Self:
        """Open a checkpoint, or a transformers model as ``hf:FOLDER``; what this class does not read is refused."""
        if str(path).startswith(HF):
            from fna_lightning.integrations.hf.reader import open_reader

            model, reader_codec, place = open_reader(str(path).removeprefix(HF))
            return cls(place.name, place, model, reader_codec)
        checkpoint = read_checkpoint(path)
        codec = cls.codec_of(checkpoint, path)
        task = task_of(checkpoint, path, trust=trust)
        if not attention_layers(task):
            raise UsageError(f"{path} holds no attention layer: there is no graph to study")
        folder = run_folder_of(path)
        return cls(folder.parent.name if folder else Path(path).stem, Path(path), task, codec, trust)

    @classmethod
    def codec_of(cls, checkpoint: dict[str, Any], path: str | Path) -> Any:
        """Return how the model of a checkpoint reads the world."""
        return TextCodec.from_checkpoint(checkpoint, path)

    @property
    def reads(self) -> object:
        """What two models must share to be compared token by token."""
        return self.codec.tokenizer

    @property
    def attention(self) -> str:
        """The attentions of the model, as they name themselves."""
        return ", ".join(sorted({repr(module) for module in self.task.modules() if isinstance(module, Attention)}))

    def batch(self, sequences: list[Reading]) -> tuple[Tensor, ...]:
        """Return padded (B, N) token ids and their (B,) lengths."""
        return pad_tokens(sequences)

    def probabilities(self, sequences: list[Reading]) -> Tensor:
        """Return the (B, C) probabilities of the classes."""
        with torch.inference_mode():
            return self.task(*self.batch(sequences)).softmax(dim=-1)

    def maps(self, ids: Reading) -> dict[str, AttentionMap]:
        """Return the weights of every self-attention layer for one example."""
        batch = self.batch([ids])

        def run() -> dict[str, Tensor]:
            self.task(*batch)
            return {"": batch[1]} if len(batch) > 1 else {}

        return self.self_maps(attention_maps(self.task, run))

    def self_maps(self, found: dict[str, AttentionMap]) -> dict[str, AttentionMap]:
        """Return those of ``found`` that are walks, if all of them are numbers."""
        for name, one in found.items():
            if not one.weights.isfinite().all():
                raise UsageError(
                    f"{self.path}: the attention weights of {name} are not finite (NaN or infinite); the model has "
                    "diverged, analyse an earlier checkpoint"
                )
        return {name: one for name, one in found.items() if one.is_self}


def given_texts(subject: Subject, texts: list[str], max_length: int) -> list[Example]:
    """Return texts a person typed; one without a token is refused."""
    examples = []
    for number, text in enumerate(texts, start=1):
        limit = min(max_length, subject.codec.max_length)
        ids, words = subject.codec.encode(text)[:limit], subject.codec.spans(text)[:limit]
        if not ids:
            raise UsageError(f"text {number} ({text!r}) has no token: there is no graph to study")
        examples.append(Example(f"text {number}", ids, words))
    return examples


def split_texts(subject: Subject, split: str, count: int, max_length: int) -> list[Example]:
    """Return ``count`` texts spread evenly over a split of the data the run was trained on."""
    folder = run_folder_of(subject.path) if isinstance(subject.codec, TextCodec) else None
    if folder is None:
        raise UsageError(
            f"{subject.path} lies in no run folder, so its data set is not known; give texts by --text, or move it "
            "back to RUN/checkpoints beside RUN/config.yaml"
        )
    sequences = run_data(folder / "config.yaml", trust=subject.trust).split(split)
    count = min(count, len(sequences))
    examples = []
    for index in (place * len(sequences) // count for place in range(count)):
        tokens, label = sequences[index]
        if len(tokens):
            ids = [int(one) for one in tokens[:max_length]]
            examples.append(Example(f"{split} {index}", ids, subject.codec.words(ids), label))
    if not examples:
        raise UsageError(f"the split {split!r} of {folder / 'config.yaml'} has no text with a token")
    return examples


def run_data(config: Path, *, trust: bool = False) -> Any:
    """Return the data module a run's configuration describes.

    Args:
        config: the config.yaml of the run folder.
        trust: whether it may name any function or class.
    """
    import fna_lightning.tasks  # noqa: F401 - importing is registering

    limit_jsonargparse()
    settings = read_settings(config) if trust else checked_config(config)
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(L.LightningDataModule, "data")
    try:
        data = parser.instantiate_classes(parser.parse_object({"data": settings["data"]})).data
    except Exception as error:
        raise UsageError(f"the data of {config} cannot be built: {parser_message(str(error))}") from error
    if not hasattr(data, "split"):
        raise UsageError(f"{config} names {type(data).__name__}, which hands out no splits; give texts by --text")
    data.prepare_data()
    return data
