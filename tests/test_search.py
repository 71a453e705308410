"""Beam search compared with exhaustive search, and sampling."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fna_lightning.search import Hypothesis, ScoreNext, TokenScores, beam_search, sample

BEGIN, END = 0, 1


@dataclass
class Tree:
    """Random log-probabilities of the next token after every prefix, one table per sentence.

    The next token is 1 (the end), 2, ...; its probability depends on all tokens before it.
    """

    tables: list[dict[tuple[int, ...], Tensor]]
    size: int

    @classmethod
    def random(cls, seed: int, sentences: int, words: int, longest: int, sharpness: float = 1.0) -> "Tree":
        generator = torch.Generator().manual_seed(seed)
        tables = []
        for _ in range(sentences):
            table = {}
            for length in range(longest):
                for prefix in itertools.product(range(2, 2 + words), repeat=length):
                    scores = sharpness * torch.randn(2 + words, generator=generator, dtype=torch.float64)
                    scores[BEGIN] = -math.inf
                    table[prefix] = scores.log_softmax(dim=0)
            tables.append(table)
        return cls(tables, 2 + words)

    def scorer(self, sentence: int | None = None) -> tuple[ScoreNext, "Rows"]:
        sentences = [sentence] if sentence is not None else list(range(len(self.tables)))
        return self._score, Rows(torch.tensor(sentences))

    def _score(self, prefixes: Tensor, state: "Rows") -> tuple[Tensor, "Rows"]:
        state.scored += len(prefixes)
        rows = zip(prefixes.tolist(), state.sentence.tolist(), strict=True)
        return torch.stack([self.tables[sentence][tuple(prefix[1:])] for prefix, sentence in rows]), state

    def all_sequences(self, sentence: int, longest: int, length_penalty: float) -> list[Hypothesis]:
        """Return all sequences of at most ``longest`` tokens, the end included, best first."""
        table, sequences = self.tables[sentence], []
        for length in range(longest):
            for words in itertools.product(range(2, self.size), repeat=length):
                total = sum(float(table[words[:position]][word]) for position, word in enumerate(words))
                total += float(table[words][END])
                sequences.append(Hypothesis(list(words), total, total / (length + 1) ** length_penalty))
        return sorted(sequences, key=lambda sequence: -sequence.score)


class Rows:
    """State that stores the sentence of each row and the number of rows scored so far."""

    def __init__(self, sentence: Tensor, scored: int = 0) -> None:
        self.sentence = sentence
        self.scored = scored

    def select(self, rows: Tensor) -> "Rows":
        assert (self.sentence[rows] == self.sentence[rows[:, :1]]).all(), "each row of indices belongs to one sentence"
        self.sentence = self.sentence[rows.flatten()]
        return self


def search(
    tree: Tree, max_lengths: list[int], *, sentence: int | None = None, **more: object
) -> list[list[Hypothesis]]:
    scorer, state = tree.scorer(sentence)
    return beam_search(scorer, state, max_lengths=max_lengths, begin=BEGIN, end=END, **more)  # type: ignore[arg-type]


def same(first: Hypothesis, second: Hypothesis) -> bool:
    return first.tokens == second.tokens and math.isclose(first.score, second.score, rel_tol=1e-5)


SEEDS = st.integers(0, 2**31)
PENALTIES = st.sampled_from([0.0, 0.6, 1.0, 2.0, -0.5])


@given(seed=SEEDS, words=st.integers(1, 3), longest=st.integers(1, 4), penalty=PENALTIES, n_best=st.integers(1, 4))
def test_widest_beam_is_exhaustive(seed, words, longest, penalty, n_best) -> None:
    tree = Tree.random(seed, 1, words, longest, sharpness=2.0)
    sequences = tree.all_sequences(0, longest, penalty)
    best = search(tree, [longest], beam=max(len(sequences), n_best), length_penalty=penalty, n_best=n_best)[0]
    assert len(best) == min(n_best, len(sequences))
    assert all(same(hypothesis, sequence) for hypothesis, sequence in zip(best, sequences, strict=False))


@given(seed=SEEDS, beam=st.integers(1, 4), penalty=PENALTIES)
def test_batch_gives_the_results_of_single_sentences(seed, beam, penalty) -> None:
    tree, lengths = Tree.random(seed, 4, 3, 4, sharpness=2.0), [4, 1, 3, 4]
    together = search(tree, lengths, beam=beam, length_penalty=penalty, n_best=beam)
    for sentence, length in enumerate(lengths):
        (alone,) = search(tree, [length], sentence=sentence, beam=beam, length_penalty=penalty, n_best=beam)
        assert alone == together[sentence]


@given(seed=SEEDS, penalty=PENALTIES)
def test_beam_of_one_is_greedy(seed, penalty) -> None:
    tree = Tree.random(seed, 1, 3, 5)
    greedy: list[int] = []
    while len(greedy) < 4 and (best := int(tree.tables[0][tuple(greedy)].argmax())) != END:
        greedy.append(best)
    assert search(tree, [5], beam=1, length_penalty=penalty)[0][0].tokens == greedy


@given(seed=SEEDS, beam=st.integers(1, 6), penalty=PENALTIES, n_best=st.integers(1, 3))
def test_stopping_early_does_not_change_the_result(seed, beam, penalty, n_best) -> None:
    tree = Tree.random(seed, 1, 3, 5, sharpness=3.0)
    n_best = min(n_best, beam)
    early = search(tree, [5], beam=beam, length_penalty=penalty, n_best=n_best)[0]
    # With n_best = beam, the search ends only when every slot holds a finished hypothesis.
    late = search(tree, [5], beam=beam, length_penalty=penalty, n_best=beam)[0]
    assert early == late[:n_best]


@given(seed=SEEDS, beam=st.integers(1, 3))
def test_widest_beam_is_best_for_sequences_of_one_length(seed, beam) -> None:
    tree, longest = exact_length(Tree.random(seed, 1, 3, 4)), 4
    sequences = tree.all_sequences(0, longest, 1.0)
    widest = search(tree, [longest], beam=len(sequences))[0][0]
    assert widest.score >= search(tree, [longest], beam=beam)[0][0].score - 1e-6
    assert len(widest.tokens) == longest - 1


def test_wider_beam_may_be_worse_than_greedy_search() -> None:
    # Beam search is not monotone in its width. Here the second slot goes to the worse first word, whose two
    # continuations are better than any continuation of the best first word until the last word.
    probabilities = {
        (): [0.6, 0.4, 0.0, 0.0],
        (2,): [0.26, 0.25, 0.25, 0.24],
        (3,): [0.5, 0.5, 0.0, 0.0],
        (2, 2): [1.0, 0.0, 0.0, 0.0],
    }
    table = {}
    for prefix in itertools.chain.from_iterable(itertools.product(range(2, 6), repeat=length) for length in range(3)):
        words = probabilities.get(prefix, [0.25] * 4)
        table[prefix] = torch.tensor([0.0, 0.0, *words], dtype=torch.float64).log()
    end = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64).log()
    table |= dict.fromkeys(itertools.product(range(2, 6), repeat=3), end)
    tree = Tree([table], 6)
    greedy, two, exhaustive = (search(tree, [4], beam=beam, length_penalty=0.0)[0][0] for beam in (1, 2, 64))
    assert greedy.tokens == exhaustive.tokens == [2, 2, 2]
    assert greedy.log_probability == pytest.approx(math.log(0.6 * 0.26), abs=1e-6)
    assert two.log_probability == pytest.approx(math.log(0.4 * 0.5 * 0.25), abs=1e-6)


def exact_length(tree: Tree) -> Tree:
    """Forbid the end before the maximum length."""
    longest = max(len(prefix) for prefix in tree.tables[0])
    for table in tree.tables:
        for prefix, scores in table.items():
            if len(prefix) < longest:
                scores[END] = -math.inf
                table[prefix] = scores.log_softmax(dim=0)
    return tree


def test_finished_sentences_are_not_scored() -> None:
    tree = Tree.random(0, 8, 2, 4, sharpness=0.1)
    for table in tree.tables[1:]:
        # These sentences end at once with probability 1.
        table[()] = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf], dtype=torch.float64)
    scorer, state = tree.scorer()
    results = beam_search(scorer, state, max_lengths=[4] * 8, begin=BEGIN, end=END, beam=3)
    assert [hypotheses[0].tokens for hypotheses in results[1:]] == [[]] * 7
    # Eight rows in the first step, then at most three hypotheses of the remaining sentence.
    assert state.scored <= 8 + 3 * 3


def test_hypothesis_ends_at_the_maximum_length() -> None:
    tree = exact_length(Tree.random(3, 1, 3, 5))
    for table in tree.tables:
        for prefix, scores in table.items():
            if len(prefix) == 2:
                scores[END] = -5.0
    (hypotheses,) = search(tree, [3], beam=2)
    assert len(hypotheses[0].tokens) == 2


@given(seed=SEEDS, size=st.integers(1, 2000), count=st.integers(1, 6), levels=st.sampled_from([3, 10_000]))
def test_largest_equals_topk(seed, size, count, levels) -> None:
    # With few levels, many values are equal.
    values = torch.randint(levels, (4, size), generator=torch.Generator().manual_seed(seed)).double()
    values[0] = -math.inf
    count = min(count, size)
    largest, indices = TokenScores(values, normalized=True).largest(count)
    assert torch.equal(largest, values.topk(count, dim=-1).values)
    assert torch.equal(values.gather(1, indices), largest)
    assert all(len(set(row)) == count for row in indices.tolist())


@given(seed=SEEDS, size=st.integers(1, 2000), count=st.integers(1, 40), levels=st.sampled_from([3, 10_000]))
def test_largest_scores_equal_topk(seed, size, count, levels) -> None:
    scores = torch.randint(levels, (4, size), generator=torch.Generator().manual_seed(seed)).float()
    scores[0, 1:] = -math.inf
    count = min(count, size)
    token_scores = TokenScores(scores.clone())
    largest, tokens = token_scores.largest(count)
    assert torch.equal(scores.gather(1, tokens), scores.topk(count, dim=-1).values)
    assert torch.equal(largest, token_scores.log_probabilities().gather(1, tokens))
    assert all(len(set(row)) == count for row in tokens.tolist())


@pytest.mark.parametrize("size", [1, 63, 64, 200, 1000, 6001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_token_scores_are_a_log_softmax(size, dtype) -> None:
    scores = (3.0 * torch.randn(7, size, generator=torch.Generator().manual_seed(0))).to(dtype)
    scores[3] -= 500.0
    scores[4] += 500.0
    want = scores.to(torch.promote_types(dtype, torch.float32)).log_softmax(dim=-1)
    token_scores, count = TokenScores(scores.clone()), min(5, size)
    torch.testing.assert_close(token_scores.log_probabilities(), want, rtol=1e-6, atol=1e-4)
    largest, tokens = token_scores.largest(count)
    torch.testing.assert_close(largest, want.gather(1, tokens), rtol=1e-6, atol=1e-4)
    assert torch.equal(largest.argsort(dim=1, descending=True, stable=True), torch.arange(count).expand(7, -1))
    torch.testing.assert_close(token_scores.of(size - 1), want[:, -1], rtol=1e-6, atol=1e-4)


def test_excluded_tokens_do_not_change_the_others() -> None:
    scores = torch.randn(5, 700, generator=torch.Generator().manual_seed(0))
    scores[:, [0, 130]] += 20.0
    want = scores.log_softmax(dim=-1)
    want[:, [0, 130, 699]] = -math.inf
    token_scores = TokenScores(scores.clone())
    token_scores.exclude([0, 130, 699])
    torch.testing.assert_close(token_scores.log_probabilities(), want)
    largest, tokens = token_scores.largest(6)
    expected = want.topk(6, dim=-1)
    torch.testing.assert_close(largest, expected.values)
    assert torch.equal(tokens, expected.indices)


@pytest.mark.parametrize("size", [10, 1000])
def test_scores_that_are_nan_have_no_log_probability(size) -> None:
    scores = torch.randn(2, size)
    scores[1, size // 2] = math.nan
    log_probabilities = TokenScores(scores).log_probabilities()
    assert log_probabilities[0].isfinite().all()
    assert log_probabilities[1].isnan().all()


def test_no_sentences() -> None:
    assert beam_search(lambda prefixes, state: (prefixes, state), None, max_lengths=[], begin=0, end=1) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam must be at least 1 .greedy., got 0"),
        ({"beam": 2, "n_best": 3}, r"n_best must lie between 1 and the beam \(2\), got 3"),
        ({"max_lengths": [0]}, r"max_lengths must be at least 1 \(the end token\), got 0"),
    ],
)
def test_invalid_arguments(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        search(Tree.random(0, 1, 1, 1), **{"max_lengths": [1], **settings})


def test_samples_follow_the_probabilities() -> None:
    tree = Tree.random(5, 1, 2, 2)
    tree = Tree(tree.tables * 4000, tree.size)
    scorer, state = tree.scorer()
    drawn = sample(
        scorer, state, max_lengths=[2] * 4000, begin=BEGIN, end=END, generator=torch.Generator().manual_seed(0)
    )
    for word in (END, 2, 3):
        probability = float(tree.tables[0][()][word].exp())
        frequency = sum(sequence.tokens == ([] if word == END else [word]) for sequence in drawn) / 4000
        assert frequency == pytest.approx(probability, abs=0.03)


def test_samples_at_low_temperature_are_greedy() -> None:
    tree = Tree.random(7, 3, 3, 5)
    scorer, state = tree.scorer()
    drawn = sample(scorer, state, max_lengths=[5, 4, 3], begin=BEGIN, end=END, temperature=1e-4)
    greedy = [hypotheses[0].tokens for hypotheses in search(tree, [5, 4, 3], beam=1)]
    assert [sequence.tokens for sequence in drawn] == greedy
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        sample(scorer, state, max_lengths=[1], begin=BEGIN, end=END, temperature=0)
