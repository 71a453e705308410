"""What is studied of a translator: the sources it reads and the translations it makes of them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fna_lightning.analysis.models import Example, Subject, run_data
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.nn import Seq2Seq
from fna_lightning.search import Hypothesis
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.translation.codec import BEGIN, END, TranslationCodec
from fna_lightning.tasks.translation.translator import translate
from fna_lightning.training.run_folder import run_folder_of


@dataclass(frozen=True)
class TranslationSubject(Subject):
    """A trained translator with its codec; the ids of an example are those of a source, its end included."""

    @classmethod
    def codec_of(cls, checkpoint: dict[str, Any], path: str | Path) -> TranslationCodec:
        return TranslationCodec.from_checkpoint(checkpoint, path)

    @property
    def reads(self) -> object:
        return self.codec.source_tokenizer, self.codec.target_tokenizer

    @property
    def network(self) -> Seq2Seq:
        network: Any = self.task.network
        assert isinstance(network, Seq2Seq)
        return network

    def translate(self, sources: list[list[int]]) -> list[Hypothesis]:
        """Return the best translation of each source."""
        tokens, lengths = self.batch(sources)
        decoding: Any = self.task.decoding
        return [found[0] for found in translate(self.network, tokens, lengths, decoding)]

    def maps(self, ids: list[int]) -> dict[str, AttentionMap]:
        """Return the weights of every layer of the encoder for one source."""
        tokens, lengths = self.batch([ids])

        def run() -> dict[str, Tensor]:
            self.network.encode(tokens, lengths)
            return {"": lengths}

        return self.self_maps(attention_maps(self.task, run))

    def pair_maps(self, ids: list[int], said: list[int]) -> dict[str, AttentionMap]:
        """Return the weights of every layer, the cross-attentions too, while ``said`` is said."""
        tokens, lengths = self.batch([ids])
        target = torch.tensor([[BEGIN, *said]])

        def run() -> dict[str, Tensor]:
            self.network.features(tokens, lengths, target)
            return {"network.encoder": lengths, "network.decoder": torch.tensor([target.size(1)])}

        return attention_maps(self.task, run)

    def said_probabilities(self, sources: list[list[int]], said: list[list[int]]) -> list[Tensor]:
        """Return for each pair the (N, V) probabilities of each token of the translation and its end."""
        tokens, lengths = self.batch(sources)
        targets = [[BEGIN, *one] for one in said]
        padded, _ = pad_tokens(targets)
        with torch.no_grad():
            found = self.network(tokens, lengths, padded).softmax(dim=-1)
        return [rows[: len(one)] for rows, one in zip(found, targets, strict=True)]


def given_sources(subject: TranslationSubject, texts: list[str], max_length: int) -> list[Example]:
    """Return sources a person typed; one without a token is refused."""
    examples = []
    for number, text in enumerate(texts, start=1):
        ids = subject.codec.encode(text)[: min(max_length, subject.codec.max_length) - 1]
        if not ids:
            raise UsageError(f"text {number} ({text!r}) has no token: there is no graph to study")
        examples.append(_example(f"text {number}", subject, ids))
    return examples


def split_sources(subject: TranslationSubject, split: str, count: int, max_length: int) -> list[Example]:
    """Return ``count`` sources spread evenly over a split of the data the run was trained on."""
    folder = run_folder_of(subject.path)
    if folder is None:
        raise UsageError(
            f"{subject.path} lies in no run folder, so its data set is not known; give texts by --text, or move it "
            "back to RUN/checkpoints beside RUN/config.yaml"
        )
    pairs = run_data(folder / "config.yaml", trust=subject.trust).split(split)
    count = min(count, len(pairs))
    found = []
    for index in (place * len(pairs) // count for place in range(count)):
        ids = [int(one) for one in pairs[index][0][: max_length - 1]]
        if ids:
            found.append(_example(f"{split} {index}", subject, ids))
    if not found:
        raise UsageError(f"the split {split!r} of {folder / 'config.yaml'} has no source with a token")
    return found


def _example(title: str, subject: TranslationSubject, ids: list[int]) -> Example:
    ids = [*ids, END]
    return Example(title, ids, subject.codec.source_words(ids))
