"""Beam search and sampling for any model that scores the next token.

The model is a function ``score_next(prefixes, state)``, which maps (R, T) prefixes, including the start token, to the
(R, V) log-probabilities of their next tokens and the new state. Each row is a hypothesis. Instead of log-probabilities,
it may return ``TokenScores``. A state is None or an object with ``select(rows)``, such as a key-value cache: it keeps
the given rows, a (sentences, hypotheses) tensor of indices.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self, TypeVar

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu import scores as cpu_scores
from fna_lightning.attention.kernels.cpu.scores import BLOCK, MOST_LARGEST


class TokenScores:
    """Scores whose log-softmax is the log-probability of each token, such as logits.

    A search needs only the best tokens of each hypothesis, so the scores are not normalized one by one.

    Args:
        scores: (R, V).
        normalized: whether the scores are log-probabilities already.
    """

    def __init__(self, scores: Tensor, *, normalized: bool = False) -> None:
        # In half precision, many continuations would have the same log-probability.
        self.scores = scores.to(torch.promote_types(scores.dtype, torch.float32))
        self._log_sums: Tensor | None = None  # (R,), None if the scores are normalized
        self._maxima: Tensor | None = None  # (R, V // BLOCK), largest scores of whole blocks
        if normalized:
            return
        if cpu_scores.usable(self.scores):
            self._log_sums, self._maxima = cpu_scores.scan(self.scores)
        else:
            self._log_sums = self.scores.logsumexp(dim=-1)

    def exclude(self, tokens: Sequence[int]) -> None:
        """Set the probabilities of tokens to 0, without changing those of the others. This changes ``scores``."""
        self.scores[:, list(tokens)] = -math.inf
        if self._maxima is not None:
            for block in {token // BLOCK for token in tokens if token // BLOCK < self._maxima.size(1)}:
                self._maxima[:, block] = self.scores[:, block * BLOCK : (block + 1) * BLOCK].amax(dim=1)

    def log_probabilities(self) -> Tensor:
        """Return the (R, V) log-probabilities."""
        return self.scores if self._log_sums is None else self.scores - self._log_sums[:, None]

    def of(self, token: int) -> Tensor:
        """Return the (R,) log-probabilities of one token."""
        scores = self.scores[:, token]
        return scores if self._log_sums is None else scores - self._log_sums

    def largest(self, count: int) -> tuple[Tensor, Tensor]:
        """Return the (R, ``count``) largest log-probabilities and their tokens; faster than ``topk``.

        The largest scores lie in the ``count`` blocks with the largest maxima, and maxima are cheap to compute.
        """
        rows, size = self.scores.shape
        blocks = size // BLOCK
        if self._maxima is not None and count <= min(size, MOST_LARGEST):
            largest, tokens = cpu_scores.largest(self.scores, self._maxima, count)
        elif blocks <= 2 * count:
            largest, tokens = self.scores.topk(count, dim=-1)
        else:
            whole = self.scores[:, : blocks * BLOCK].unflatten(1, (blocks, BLOCK))
            best = whole.amax(dim=-1).topk(count, dim=-1).indices  # (R, count)
            inside = whole.gather(1, best[..., None].expand(-1, -1, BLOCK)).flatten(1)
            device = self.scores.device
            indices = (best[..., None] * BLOCK + torch.arange(BLOCK, device=device)).flatten(1)
            rest = torch.arange(blocks * BLOCK, size, device=device).expand(rows, -1)
            largest, order = torch.cat([inside, self.scores[:, blocks * BLOCK :]], dim=1).topk(count, dim=-1)
            tokens = torch.cat([indices, rest], dim=1).gather(1, order)
        return largest if self._log_sums is None else largest - self._log_sums[:, None], tokens


class State(Protocol):
    """State of a model between two tokens, with one entry per row."""

    def select(self, rows: Tensor) -> Self:
        """Return the state of the rows (sentences, hypotheses)."""
        ...


StateT = TypeVar("StateT", bound=State | None)
ScoreNext = Callable[[Tensor, StateT], tuple[Tensor | TokenScores, StateT]]


@dataclass(frozen=True)
class Hypothesis:
    """A finished sequence.

    Attributes:
        tokens: the token ids, without start and end.
        log_probability: log-probability of the sequence, including the end.
        score: the log-probability divided by length ** length_penalty, where the length includes the end.
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

    Each sentence has ``beam`` slots. At each step, the best continuations of its open hypotheses fill the slots that
    are not taken by finished hypotheses. A beam of 1 is greedy search; a beam as large as the number of possible
    sequences is exhaustive search. The order of hypotheses with equal scores is undefined.

    A sentence is done when no open hypothesis can still beat its ``n_best`` finished ones. This does not change the
    result: the log-probability of a hypothesis only decreases, and its divisor is bounded by the maximum length. A
    sentence that is done leaves the batch. At its maximum length, a hypothesis can only end.

    Args:
        score_next: maps prefixes and a state to log-probabilities and the new state; see the module.
        state: initial state, one row per sentence.
        max_lengths: maximum number of tokens of each hypothesis, including the end, per sentence.
        begin: the token every prefix starts with.
        end: the token that finishes a hypothesis.
        beam: number of slots per sentence.
        length_penalty: 0 compares log-probabilities, 1 their mean over tokens; larger values favor longer hypotheses.
        n_best: number of hypotheses returned per sentence, at most ``beam``; fewer if fewer have a probability above 0.
        device: device of the prefixes.
    """
    if beam < 1:
        raise ValueError(f"beam must be at least 1 (greedy), got {beam}")
    if not 1 <= n_best <= beam:
        raise ValueError(
            f"n_best must lie between 1 and the beam ({beam}), got {n_best}; use a wider beam for more hypotheses"
        )
    if any(length < 1 for length in max_lengths):
        raise ValueError(f"max_lengths must be at least 1 (the end token), got {min(max_lengths)}")
    finished: list[list[Hypothesis]] = [[] for _ in max_lengths]
    sentences = list(range(len(max_lengths)))  # sentences that are not done, in the order of the rows
    limits = torch.tensor(list(max_lengths), dtype=torch.long, device=device)
    open_slots = torch.full((len(sentences),), beam, dtype=torch.long, device=device)
    prefixes = torch.full((len(sentences), 1), begin, dtype=torch.long, device=device)
    scores = torch.zeros(len(sentences), 1, device=device)  # (S, W) log-probabilities; -inf is an empty row
    length = 0
    while sentences:
        length += 1
        scored, state = score_next(prefixes, state)
        best, rows, tokens = _continue(scores, _token_scores(scored), beam, end, limits <= length)
        best = best.masked_fill(torch.arange(best.size(1), device=device) >= open_slots[:, None], -math.inf)
        ends = (tokens == end) & (best > -math.inf)
        for index, slot in ends.nonzero().tolist():
            hypothesis = prefixes[rows[index, slot], 1:].tolist()
            total = float(best[index, slot])
            finished[sentences[index]].append(Hypothesis(hypothesis, total, total / length**length_penalty))
        open_slots = open_slots - ends.sum(dim=1)
        best = best.masked_fill(ends, -math.inf)
        hypotheses = [finished[sentence] for sentence in sentences]
        undecided = _undecided(best, hypotheses, limits, length, length_penalty, n_best)
        keep = [index for index, is_open in enumerate(undecided) if is_open]
        sentences = [sentences[index] for index in keep]
        if not sentences:
            break
        chosen = torch.tensor(keep, device=device)
        limits, open_slots = limits[chosen], open_slots[chosen]
        # Open rows first; as many columns as the sentence with most open rows needs.
        scores, order = best[chosen].sort(dim=1, descending=True, stable=True)
        width = int((scores > -math.inf).sum(dim=1).max())
        scores, order = scores[:, :width], order[:, :width]
        rows, tokens = rows[chosen].gather(1, order), tokens[chosen].gather(1, order)
        # An empty row repeats the first row of its sentence; its score stays -inf.
        empty = scores == -math.inf
        rows, tokens = (torch.where(empty, values[:, :1], values) for values in (rows, tokens))
        prefixes = torch.cat([prefixes[rows.flatten()], tokens.reshape(-1, 1)], dim=1)
        if state is not None:
            state = state.select(rows)
    return [sorted(hypotheses, key=lambda hypothesis: -hypothesis.score)[:n_best] for hypotheses in finished]


def _token_scores(scores: Tensor | TokenScores) -> TokenScores:
    return scores if isinstance(scores, TokenScores) else TokenScores(scores, normalized=True)


def _continue(
    scores: Tensor, next_scores: TokenScores, beam: int, end: int, last: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the log-probabilities, rows and tokens of the best (S, K) continuations of each sentence.

    Args:
        scores: (S, W) log-probabilities of the open hypotheses.
        next_scores: scores of each next token, S * W rows.
        beam: maximum number of continuations per sentence.
        end: the token that finishes a hypothesis.
        last: (S,) True where only the end may follow.
    """
    sentences, width = scores.shape
    # At most `beam` continuations of a row can be among the `beam` best of its sentence.
    row_best, tokens = next_scores.largest(min(beam, next_scores.scores.size(-1)))
    if last.any():
        last_rows = last.repeat_interleave(width)
        row_best[last_rows] = -math.inf
        row_best[last_rows, 0] = next_scores.of(end)[last_rows]
        tokens[last_rows, 0] = end
    total = (scores.reshape(-1, 1) + row_best).view(sentences, -1)
    best, flat = total.topk(min(beam, total.size(1)), dim=1)
    row = flat // row_best.size(1) + width * torch.arange(sentences, device=scores.device)[:, None]
    return best, row, tokens.view(sentences, -1).gather(1, flat)


def _undecided(
    best: Tensor,
    finished: list[list[Hypothesis]],
    limits: Tensor,
    length: int,
    length_penalty: float,
    n_best: int,
) -> list[bool]:
    """Return for each sentence whether an open hypothesis may still become one of its ``n_best``."""
    undecided = []
    for total, hypotheses, limit in zip(best.amax(dim=1).tolist(), finished, limits.tolist(), strict=True):
        if total == -math.inf or limit <= length:
            undecided.append(False)
            continue
        # The best possible score has the maximum length, or, with a negative penalty, the next length.
        best_possible = max(total / final_length**length_penalty for final_length in (length + 1, limit))
        scores = sorted((hypothesis.score for hypothesis in hypotheses), reverse=True)
        undecided.append(len(scores) < n_best or scores[n_best - 1] < best_possible)
    return undecided


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
    """Sample one sequence per sentence, token by token.

    Args:
        score_next: maps prefixes and a state to log-probabilities and the new state; see the module.
        state: initial state, one row per sentence.
        max_lengths: maximum number of tokens of each sequence, including the end, per sentence.
        begin: the token every prefix starts with.
        end: the token that finishes a sequence.
        temperature: divisor of the log-probabilities before sampling; close to 0, this is greedy search.
        generator: random number generator.
        device: device of the prefixes.
    """
    if not temperature > 0.0:
        raise ValueError(
            f"temperature must be positive, got {temperature}; for the most probable token use beam_search"
        )
    hypotheses: dict[int, Hypothesis] = {}
    sentences = list(range(len(max_lengths)))
    prefixes = torch.full((len(sentences), 1), begin, dtype=torch.long, device=device)
    totals = torch.zeros(len(sentences), device=device)
    length = 0
    while sentences:
        length += 1
        scored, state = score_next(prefixes, state)
        log_probabilities = _token_scores(scored).log_probabilities()
        drawn = (log_probabilities / temperature).softmax(dim=-1).multinomial(1, generator=generator)[:, 0]
        last = torch.tensor([max_lengths[sentence] <= length for sentence in sentences], device=device)
        drawn = drawn.masked_fill(last, end)
        totals = totals + log_probabilities.gather(1, drawn[:, None])[:, 0]
        for index in (drawn == end).nonzero()[:, 0].tolist():
            total = float(totals[index])
            hypotheses[sentences[index]] = Hypothesis(prefixes[index, 1:].tolist(), total, total)
        keep = (drawn != end).nonzero()[:, 0]
        sentences = [sentences[index] for index in keep.tolist()]
        prefixes = torch.cat([prefixes[keep], drawn[keep, None]], dim=1)
        totals = totals[keep]
        if state is not None and sentences:
            state = state.select(keep[:, None])
    return [hypotheses[sentence] for sentence in range(len(max_lengths))]
