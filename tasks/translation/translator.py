"""From padded sources to hypotheses: a network and beam search."""

import math
from functools import partial

import torch
from torch import Tensor

from fna_lightning.nn import DecoderState, Seq2Seq
from fna_lightning.search import Hypothesis, ScoreNext, beam_search
from fna_lightning.tasks.translation.codec import BEGIN, END, PAD
from fna_lightning.tasks.translation.decoding import Decoding

# a hypothesis is made of words; these are none
NEVER_SAID = (PAD, BEGIN)


@torch.no_grad()
def translate(
    network: Seq2Seq, source: Tensor, lengths: Tensor, decoding: Decoding, *, n_best: int = 1, cached: bool = True
) -> list[list[Hypothesis]]:
    """Return the ``n_best`` translations of each source, best first.

    Args:
        network: in evaluation mode.
        source: (B, M) token ids, of which the first ``lengths`` are real.
        lengths: (B,).
        decoding: the settings of the search.
        n_best: translations of a source.
        cached: whether keys and values are kept from token to token; else every prefix is computed anew.
    """
    limit = network.max_length
    score_next: ScoreNext = partial(_cached, network) if cached else partial(_anew, network)
    return beam_search(
        score_next,
        network.begin(source, lengths) if cached else Sources(source, lengths),
        max_lengths=[decoding.longest(one, limit) for one in lengths.tolist()],
        begin=BEGIN,
        end=END,
        beam=decoding.beam,
        length_penalty=decoding.length_penalty,
        n_best=n_best,
        device=source.device,
    )


class Sources:
    """A state that remembers nothing but the sources: the plain way, to compare with."""

    def __init__(self, source: Tensor, lengths: Tensor) -> None:
        self.source = source
        self.lengths = lengths

    def select(self, rows: Tensor) -> "Sources":
        """Return the sources of the rows (sentences, hypotheses)."""
        return Sources(self.source[rows.flatten()], self.lengths[rows.flatten()])


def _cached(network: Seq2Seq, prefixes: Tensor, state: DecoderState) -> tuple[Tensor, DecoderState]:
    scores, state = network.score_next(prefixes, state)
    return _words_only(scores), state


def _anew(network: Seq2Seq, prefixes: Tensor, state: Sources) -> tuple[Tensor, Sources]:
    features = network.features(state.source, state.lengths, prefixes)[:, -1]
    return _words_only(network.score(features).log_softmax(dim=-1)), state


def _words_only(log_probabilities: Tensor) -> Tensor:
    log_probabilities[:, list(NEVER_SAID)] = -math.inf
    return log_probabilities
