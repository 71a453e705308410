"""A trained translator out of its checkpoint: texts to hypotheses, and what they looked at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.nn import Seq2Seq
from fna_lightning.plotting.graphs import draw_alignment
from fna_lightning.search import Hypothesis
from fna_lightning.task import Task
from fna_lightning.tasks.translation.codec import BEGIN, END, PAD, UNKNOWN, TranslationCodec
from fna_lightning.tasks.translation.decoding import Decoding
from fna_lightning.tasks.translation.translator import translate


@dataclass(frozen=True)
class CheckpointedTranslator:
    """A network with its codec and the settings it was trained to be searched with."""

    task: Task
    network: Seq2Seq
    codec: TranslationCodec
    decoding: Decoding

    @classmethod
    def open(cls, path: str | Path) -> "CheckpointedTranslator":
        """Open a checkpoint; one of another task is refused with its reason."""
        checkpoint = read_checkpoint(path)
        codec = TranslationCodec.from_checkpoint(checkpoint, path)
        task: Any = task_of(checkpoint, path)
        if not isinstance(getattr(task, "network", None), Seq2Seq):
            raise UsageError(f"{path} holds a {type(task).__name__}, which does not translate")
        return cls(task, task.network, codec, task.decoding)

    @property
    def max_length(self) -> int:
        """Most tokens of a source, its end not counted."""
        return min(self.codec.max_length, self.network.max_length) - 1

    def read(self, text: str) -> tuple[list[int], list[str]]:
        """Return the ids of a text, without END, and notes about what the model does not read."""
        ids, notes = self.codec.encode(text) if text.strip() else [], []
        if len(ids) > self.max_length:
            notes.append(f"has {len(ids)} tokens; the model reads the first {self.max_length}")
            ids = ids[: self.max_length]
        if unknown := ids.count(UNKNOWN):
            notes.append(f"has {unknown} word{'s' * (unknown > 1)} the model does not know")
        return ids, notes

    def translate(
        self, sources: list[list[int]], decoding: Decoding, *, n_best: int = 1, cached: bool = True
    ) -> list[list[Hypothesis]]:
        """Return the best translations of each source, best first."""
        lengths = torch.tensor([len(ids) + 1 for ids in sources])
        padded = torch.full((len(sources), int(lengths.max())), PAD, dtype=torch.long)
        for row, ids in zip(padded, sources, strict=True):
            row[: len(ids) + 1] = torch.tensor([*ids, END])
        return translate(self.network, padded, lengths, decoding, n_best=n_best, cached=cached)

    def draw_alignment(self, source: list[int], target: list[int], path: Path) -> None:
        """Draw the cross-attention of every decoder layer, mean of its heads, while it says ``target``."""
        asked, said = torch.tensor([[*source, END]]), torch.tensor([[BEGIN, *target]])

        def run() -> None:
            self.network.features(asked, torch.tensor([asked.size(1)]), said)

        found = attention_maps(self.network, run)
        layers = [one.weights[0].mean(dim=0) for name, one in found.items() if name.endswith(".cross_attn")]
        # the row of a token is what was looked at when it was said
        draw_alignment(layers, self.codec.source_words([*source, END]), self.codec.target_words([*target, END]), path)
