"""Translate with beam search: the search with a network, and a trained translator loaded from a checkpoint."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fna_lightning.checkpoints.load import read_checkpoint, task_of
from fna_lightning.checkpoints.locate import checkpoint_file
from fna_lightning.errors import UsageError
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.nn import DecoderState, Seq2Seq
from fna_lightning.nn.token_table import PAD
from fna_lightning.search import Hypothesis, ScoreNext, TokenScores, beam_search
from fna_lightning.task import Task
from fna_lightning.tasks.data.padding import pad_tokens
from fna_lightning.tasks.data.tokenization import UNKNOWN
from fna_lightning.tasks.translation.codec import BEGIN, END, TranslationCodec
from fna_lightning.tasks.translation.decoding import Decoding

# tokens that never occur inside a translation
EXCLUDED_TOKENS = (PAD, BEGIN)


@torch.no_grad()
def translate(
    network: Seq2Seq, source: Tensor, lengths: Tensor, decoding: Decoding, *, n_best: int = 1, cached: bool = True
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` translations of each source, best first.

    Args:
        network: the network, in evaluation mode.
        source: (B, M) padded token ids.
        lengths: (B,) number of tokens of each source.
        decoding: settings of the search.
        n_best: number of translations per source.
        cached: whether to cache keys and values; if False, every prefix is recomputed.
    """
    limit = network.max_length
    score_next: ScoreNext = partial(_score_cached, network) if cached else partial(_score_uncached, network)
    return beam_search(
        score_next,
        network.begin(source, lengths) if cached else Sources(source, lengths),
        max_lengths=[decoding.longest(length, limit) for length in lengths.tolist()],
        begin=BEGIN,
        end=END,
        beam=decoding.beam,
        length_penalty=decoding.length_penalty,
        n_best=n_best,
        device=source.device,
    )


@dataclass(frozen=True)
class Translator:
    """A trained translator: the network with its codec and the search settings of its training run."""

    task: Task
    network: Seq2Seq
    codec: TranslationCodec
    decoding: Decoding

    @classmethod
    def open(cls, path: str | Path) -> "Translator":
        """Load a checkpoint or that of a run folder; raise a ``UsageError`` if it is not one of a translator."""
        path = checkpoint_file(path)
        checkpoint = read_checkpoint(path)
        codec = TranslationCodec.from_checkpoint(checkpoint, path)
        task: Any = task_of(checkpoint, path)
        if not isinstance(getattr(task, "network", None), Seq2Seq):
            raise UsageError(
                f"{path} is a {type(task).__name__}, not a translator; give the checkpoint of a translator"
            )
        return cls(task, task.network, codec, task.decoding)

    @property
    def max_length(self) -> int:
        """Maximum number of source tokens, excluding END."""
        return min(self.codec.max_length, self.network.max_length) - 1

    def encode(self, text: str) -> tuple[list[int], list[str]]:
        """Return the token ids of a text, truncated and without END, and notes on truncated and unknown tokens."""
        ids, notes = self.codec.encode(text) if text.strip() else [], []
        if len(ids) > self.max_length:
            notes.append(f"has {len(ids)} tokens; the model reads the first {self.max_length}")
            ids = ids[: self.max_length]
        if unknown := ids.count(UNKNOWN):
            notes.append(f"has {unknown} word{'s' * (unknown > 1)} the model does not know")
        return ids, notes

    def translate(
        self,
        sources: list[list[int]],
        decoding: Decoding,
        *,
        n_best: int = 1,
        cached: bool = True,
        batch_tokens: int | None = None,
    ) -> list[list[Hypothesis]]:
        """Return the ``n_best`` translations of each source, best first.

        Args:
            sources: token ids of each source, without END.
            decoding: settings of the search.
            n_best: number of translations per source.
            cached: whether to cache keys and values.
            batch_tokens: maximum number of source tokens per batch, including padding; by default all sources are
                one batch. Sources of similar length are translated together.
        """
        translations: list[list[Hypothesis]] = [[] for _ in sources]
        # the longest first, so that a batch that does not fit into memory fails at once
        order = sorted(range(len(sources)), key=lambda index: -len(sources[index]))
        while order:
            size = len(order) if batch_tokens is None else max(1, batch_tokens // (len(sources[order[0]]) + 1))
            batch, order = order[:size], order[size:]
            tokens, lengths = pad_tokens([[*sources[index], END] for index in batch])
            hypotheses = translate(self.network, tokens, lengths, decoding, n_best=n_best, cached=cached)
            for index, best in zip(batch, hypotheses, strict=True):
                translations[index] = best
        return translations

    def draw_alignment(self, source: list[int], target: list[int], path: Path) -> None:
        """Draw the cross-attention of every decoder layer, averaged over its heads, while it predicts ``target``."""
        # importing matplotlib takes time, and training does not need it
        from fna_lightning.plotting.graphs import draw_alignment

        tokens, prefix = torch.tensor([[*source, END]]), torch.tensor([[BEGIN, *target]])

        def run() -> None:
            self.network.features(tokens, torch.tensor([tokens.size(1)]), prefix)

        maps = attention_maps(self.network, run)
        layers = [layer.weights[0].mean(dim=0) for name, layer in maps.items() if name.endswith(".cross_attn")]
        # row i has the weights with which token i of the target was predicted
        draw_alignment(layers, self.codec.source_words([*source, END]), self.codec.target_words([*target, END]), path)


class Sources:
    """Search state without a cache: only the sources."""

    def __init__(self, source: Tensor, lengths: Tensor) -> None:
        self.source = source
        self.lengths = lengths

    def select(self, rows: Tensor) -> "Sources":
        """Return the sources at ``rows``, of shape (sentences, hypotheses)."""
        return Sources(self.source[rows.flatten()], self.lengths[rows.flatten()])


def _score_cached(network: Seq2Seq, prefixes: Tensor, state: DecoderState) -> tuple[TokenScores, DecoderState]:
    scores, state = network.step(prefixes, state)
    return _without_special(scores), state


def _score_uncached(network: Seq2Seq, prefixes: Tensor, state: Sources) -> tuple[TokenScores, Sources]:
    features = network.features(state.source, state.lengths, prefixes)[:, -1]
    return _without_special(network.score(features)), state


def _without_special(scores: Tensor) -> TokenScores:
    token_scores = TokenScores(scores)
    token_scores.exclude(EXCLUDED_TOKENS)
    return token_scores
