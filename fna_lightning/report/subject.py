"""What is studied: a trained text model, and the texts it reads."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
import yaml
from jsonargparse import ArgumentParser
from torch import Tensor

from fna_lightning.attention import Attention
from fna_lightning.attention_maps import AttentionMap, attention_layers, attention_maps
from fna_lightning.checkpoint import read_checkpoint, task_of
from fna_lightning.codec import TextCodec
from fna_lightning.errors import UsageError, one_sentence
from fna_lightning.run_folder import run_folder_of
from fna_lightning.task import Task


@dataclass(frozen=True)
class Example:
    """One text as token ids and as a person reads them; its label if the data set has one."""

    title: str
    ids: list[int]
    words: list[str]
    label: int | None = None


@dataclass(frozen=True)
class Subject:
    """A trained model with its codec.

    Attributes:
        label: what it is called in tables and on the page.
        path: its checkpoint.
    """

    label: str
    path: Path
    task: Task
    codec: TextCodec

    @classmethod
    def open(cls, path: str | Path) -> "Subject":
        """Open a checkpoint; one of another task than text is refused with its reason."""
        checkpoint = read_checkpoint(path)
        codec = TextCodec.from_checkpoint(checkpoint, path)
        task = task_of(checkpoint, path)
        if not attention_layers(task):
            raise UsageError(f"{path} holds no attention layer: there is no graph to study")
        folder = run_folder_of(path)
        return cls(folder.parent.name if folder else Path(path).stem, Path(path), task, codec)

    @property
    def attention(self) -> str:
        """The attentions of the model, as they name themselves."""
        return ", ".join(sorted({repr(module) for module in self.task.modules() if isinstance(module, Attention)}))

    def batch(self, sequences: list[list[int]]) -> tuple[Tensor, Tensor]:
        """Return padded (B, N) token ids and their (B,) lengths."""
        lengths = torch.tensor([len(ids) for ids in sequences])
        tokens = torch.zeros(len(sequences), max(1, int(lengths.max())), dtype=torch.long)
        for row, ids in zip(tokens, sequences, strict=True):
            row[: len(ids)] = torch.tensor(ids, dtype=torch.long)
        return tokens, lengths

    def probabilities(self, sequences: list[list[int]]) -> Tensor:
        """Return the (B, C) probabilities of the classes."""
        with torch.inference_mode():
            return self.task(*self.batch(sequences)).softmax(dim=-1)

    def maps(self, ids: list[int]) -> dict[str, AttentionMap]:
        """Return the weights of every self-attention layer for one text."""
        tokens, lengths = self.batch([ids])

        def run() -> dict[str, Tensor]:
            self.task(tokens, lengths)
            return {"": lengths}

        found = attention_maps(self.task, run)
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
    folder = run_folder_of(subject.path)
    if folder is None:
        raise UsageError(
            f"{subject.path} lies in no run folder, so its data set is not known; give texts by --text, or move it "
            "back to RUN/checkpoints beside RUN/config.yaml"
        )
    sequences = _data(folder / "config.yaml").split(split)
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


def _data(config: Path) -> Any:
    """Return the data module a run's configuration describes."""
    import fna_lightning.tasks  # noqa: F401 - importing is registering

    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(L.LightningDataModule, "data")
    try:
        described = yaml.safe_load(config.read_text())["data"]
        data = parser.instantiate_classes(parser.parse_object({"data": described})).data
    except Exception as error:
        raise UsageError(f"the data of {config} cannot be built: {one_sentence(str(error))}") from error
    if not hasattr(data, "split"):
        raise UsageError(f"{config} names {type(data).__name__}, which is no text data set; give texts by --text")
    data.prepare_data()
    return data
