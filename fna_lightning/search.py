"""Beam search and sampling: functions of what scores the next token, which know no model.

A hypothesis is a row. ``score_next(prefixes, state)`` maps (R, T) prefixes, the start token included, to the (R, V)
log-probabilities of their next token and the new state. A state is None, or anything with ``select(rows)``, which
keeps the rows (sentences, hypotheses) of it, those in a line belonging to one sentence; a key-value cache is one.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

# values whose maximum stands for all of them while the largest are looked for
BLOCK = 64


class State(Protocol):
    """What a scorer remembers of each row between two tokens."""

    def select(self, rows: Tensor) -> Self:
        """Return the state of the rows (sentences, hypotheses)."""
        ...


StateT = TypeVar("StateT", bound=State | None)
ScoreNext = Callable[[Tensor, StateT], tuple[Tensor, StateT]]


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence.

    Attributes:
        tokens: what was said, without start and end.
        log_probability: of all tokens and the end.
        score: the log-probability divided by the length, end included, to the power of the length penalty.
    """

    tokens: list[int]
    log_probability: float
    score: float


def beam_search(
    score_next: ScoreNext[StateT],
    state: StateT,
    *,
    max_lengths: Sequence[int],
    begin: int,
    end: int,
    beam: int = 5,
    length_penalty: float = 1.0,
    n_best: int = 1,
    device: torch.device | str = "cpu",
) -> list[list[Hypothesis]]:
    """Return the best finished hypotheses of each sentence, best first.

    A sentence has ``beam`` places. At each step the best continuations of its open hypotheses fill the places that are
    left; one that ends keeps its place, closed. So one place is greedy search, and as many places as there are
    sequences is exhaustive search. Hypotheses with equal scores are kept in no particular order.

    A sentence is done when no open hypothesis can still beat its ``n_best`` finished ones: a log-probability only
    falls, and is never divided by more than the greatest length allows, so this changes no answer. What is done leaves
    the batch. At its greatest length a sequence can only end.

    Args:
        score_next: see the module.
        state: of one row for each sentence.
        max_lengths: most tokens of each sentence, the end included.
        begin: the token every prefix starts with.
        end: the token that finishes a hypothesis.
        beam: places of a sentence.
        length_penalty: 0 compares log-probabilities, 1 their mean over tokens; more favours longer ones.
        n_best: hypotheses returned for a sentence, at most ``beam``; fewer if fewer have a probability above 0.
        device: where the prefixes are made.
    """
    if beam < 1:
        raise ValueError(f"beam must be at least 1 (greedy), got {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(f"n_best must lie between 1 and the beam ({beam}), got {n_best}; a wider beam finds more")
    if any(length < 1 for length in max_lengths):
        raise ValueError(f"max_lengths must be at least 1, for the end, got {min(max_lengths)}")
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    sentences = list(range(len(max_lengths)))  # those still searched, in the order of the rows
    limits = torch.tensor(list(max_lengths), dtype=torch.long, device=device)
    open_places = torch.full((len(sentences),), beam, dtype=torch.long, device=device)
    prefixes = torch.full((len(sentences), 1), begin, dtype=torch.long, device=device)
    scores = torch.zeros(len(sentences), 1, device=device)  # (S, W) log-probabilities; -inf is an empty row
    length = 0
    while sentences:
        length += 1
        log_probabilities, state = score_next(prefixes, state)
        best, rows, tokens = _continue(scores, log_probabilities, beam, end, limits <= length)
        # the places that are left, of the best continuations
        best = best.masked_fill(torch.arange(best.size(1), device=device) >= open_places[:, None], -math.inf)
        ends = (tokens == end) & (best > -math.inf)
        for place, row in ends.nonzero().tolist():
            said = prefixes[rows[place, row], 1:].tolist()
            total = float(best[place, row])
            finished[sentences[place]].append(Hypothesis(said, total, total / length**length_penalty))
        open_places = open_places - ends.sum(dim=1)
        best = best.masked_fill(ends, -math.inf)
        going = _undecided(best, [finished[one] for one in sentences], limits, length, length_penalty, n_best)
        keep = [place for place, goes in enumerate(going) if goes]
        sentences = [sentences[place] for place in keep]
        if not sentences:
            break
        chosen = torch.tensor(keep, device=device)
        limits, open_places = limits[chosen], open_places[chosen]
        # the open rows first, as many as the sentence with most of them has
        scores, order = best[chosen].sort(dim=1, descending=True, stable=True)
        width = int((scores > -math.inf).sum(dim=1).max())
        scores, order = scores[:, :width], order[:, :width]
        rows, tokens = rows[chosen].gather(1, order), tokens[chosen].gather(1, order)
        # an empty row says what its sentence's first row says, and its score stays -inf
        empty = scores == -math.inf
        rows, tokens = (torch.where(empty, some[:, :1], some) for some in (rows, tokens))
        prefixes = torch.cat([prefixes[rows.flatten()], tokens.reshape(-1, 1)], dim=1)
        if state is not None:
            state = state.select(rows)
    return [sorted(found, key=lambda one: -one.score)[:n_best] for found in finished]


def _continue(
    scores: Tensor, log_probabilities: Tensor, beam: int, end: int, last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the best (S, K) continuations of each sentence: their log-probabilities, rows and tokens.

    Args:
        scores: (S, W) log-probabilities of the open hypotheses.
        log_probabilities: (S * W, V) of each next token.
        beam: how many continuations of a sentence are needed at most.
        end: the token that finishes a hypothesis.
        last: (S,) whether only the end may follow.
    """
    sentences, width = scores.shape
    size = log_probabilities.size(-1)
    # no more than `beam` of one row can be among the `beam` best of its sentence
    each, tokens = _largest(log_probabilities, min(beam, size))
    if last.any():
        only = last.repeat_interleave(width)
        each[only] = -math.inf
        each[only, 0] = log_probabilities[only, end]
        tokens[only, 0] = end
    total = (scores.reshape(-1, 1) + each).view(sentences, -1)
    best, flat = total.topk(min(beam, total.size(1)), dim=1)
    row = flat // each.size(1) + width * torch.arange(sentences, device=scores.device)[:, None]
    return best, row, tokens.view(sentences, -1).gather(1, flat)


def _largest(values: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the ``count`` largest of each row and where they are, as ``topk`` does, in less time.

    They lie in the ``count`` blocks with the largest maxima, and a maximum is found much faster than a rank.
    """
    rows, size = values.shape
    blocks = size // BLOCK
    if blocks <= 2 * count:
        return values.topk(count, dim=-1)
    whole = values[:, : blocks * BLOCK].view(rows, blocks, BLOCK)
    best = whole.amax(dim=-1).topk(count, dim=-1).indices  # (R, count)
    inside = whole.gather(1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
    places = (best[..., None] * BLOCK + torch.arange(BLOCK, device=values.device)).flatten(1)
    rest = torch.arange(blocks * BLOCK, size, device=values.device).expand(rows, -1)
    found, order = torch.cat([inside, values[:, blocks * BLOCK :]], dim=1).topk(count, dim=-1)
    return found, torch.cat([places, rest], dim=1).gather(1, order)


def _undecided(
    best: Tensor,
    finished: list[list[Hypothesis]],
    limits: Tensor,
    length: int,
    length_penalty: float,
    n_best: int,
) -> list[bool]:
    """Return for each sentence whether an open hypothesis may still be among its ``n_best``."""
    going = []
    for total, found, limit in zip(best.amax(dim=1).tolist(), finished, limits.tolist(), strict=True):
        if total == -math.inf or limit <= length:
            going.append(False)
            continue
        # the greatest length brings a negative number nearest to 0; if the penalty is below 0, the next length does
        reach = max(total / one**length_penalty for one in (length + 1, limit))
        scores = sorted((one.score for one in found), reverse=True)
        going.append(len(scores) < n_best or scores[n_best - 1] < reach)
    return going


def sample(
    score_next: ScoreNext[StateT],
    state: StateT,
    *,
    max_lengths: Sequence[int],
    begin: int,
    end: int,
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
) -> list[Hypothesis]:
    """Return one sequence for each sentence, drawn token by token.

    Args:
        score_next: see the module.
        state: of one row for each sentence.
        max_lengths: most tokens of each sentence, the end included; the last one is the end.
        begin: the token every prefix starts with.
        end: the token that finishes a sequence.
        temperature: log-probabilities are divided by it before a token is drawn; towards 0 this is greedy search.
        generator: of the random numbers.
        device: where the prefixes are made.
    """
    if not temperature > 0.0:
        raise ValueError(f"temperature must be positive, got {temperature}; for the likeliest token use beam_search")
    found: dict[int, Hypothesis] = {}
    sentences = list(range(len(max_lengths)))
    prefixes = torch.full((len(sentences), 1), begin, dtype=torch.long, device=device)
    totals = torch.zeros(len(sentences), device=device)
    length = 0
    while sentences:
        length += 1
        log_probabilities, state = score_next(prefixes, state)
        drawn = (log_probabilities / temperature).softmax(dim=-1).multinomial(1, generator=generator)[:, 0]
        last = torch.tensor([max_lengths[one] <= length for one in sentences], device=device)
        drawn = drawn.masked_fill(last, end)
        totals = totals + log_probabilities.gather(1, drawn[:, None])[:, 0]
        for place in (drawn == end).nonzero()[:, 0].tolist():
            total = float(totals[place])
            found[sentences[place]] = Hypothesis(prefixes[place, 1:].tolist(), total, total)
        keep = (drawn != end).nonzero()[:, 0]
        sentences = [sentences[place] for place in keep.tolist()]
        prefixes = torch.cat([prefixes[keep], drawn[keep, None]], dim=1)
        totals = totals[keep]
        if state is not None and sentences:
            state = state.select(keep[:, None])
    return [found[one] for one in range(len(max_lengths))]
