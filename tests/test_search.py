"""Beam search against what it approximates: every sequence there is."""

import itertools
import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from fna_lightning.search import Hypothesis, ScoreNext, _largest, beam_search, sample

BEGIN, END = 0, 1


@dataclass
class Tree:
    """Random log-probabilities of every next token after every prefix, one tree a sentence.

    The tokens 1 (the end), 2, ... can follow; the probability of each depends on all tokens before it.
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
        numbers = [sentence] if sentence is not None else list(range(len(self.tables)))
        return self._score, Rows(torch.tensor(numbers))

    def _score(self, prefixes: Tensor, state: "Rows") -> tuple[Tensor, "Rows"]:
        state.asked += len(prefixes)
        rows = zip(prefixes.tolist(), state.sentence.tolist(), strict=True)
        return torch.stack([self.tables[number][tuple(prefix[1:])] for prefix, number in rows]), state

    def every(self, sentence: int, longest: int, length_penalty: float) -> list[Hypothesis]:
        """Return all sequences of at most ``longest`` tokens, the end included, best first."""
        table, found = self.tables[sentence], []
        for length in range(longest):
            for words in itertools.product(range(2, self.size), repeat=length):
                total = sum(float(table[words[:place]][word]) for place, word in enumerate(words))
                total += float(table[words][END])
                found.append(Hypothesis(list(words), total, total / (length + 1) ** length_penalty))
        return sorted(found, key=lambda one: -one.score)


class Rows:
    """Which sentence each row is, and how many rows were ever scored."""

    def __init__(self, sentence: Tensor, asked: int = 0) -> None:
        self.sentence = sentence
        self.asked = asked

    def select(self, rows: Tensor) -> "Rows":
        assert (self.sentence[rows] == self.sentence[rows[:, :1]]).all(), "a line of rows is one sentence"
        self.sentence = self.sentence[rows.flatten()]
        return self


def search(
    tree: Tree, max_lengths: list[int], *, sentence: int | None = None, **more: object
) -> list[list[Hypothesis]]:
    scorer, state = tree.scorer(sentence)
    return beam_search(scorer, state, max_lengths=max_lengths, begin=BEGIN, end=END, **more)  # type: ignore[arg-type]


def same(found: Hypothesis, other: Hypothesis) -> bool:
    return found.tokens == other.tokens and math.isclose(found.score, other.score, rel_tol=1e-5)


SEEDS = st.integers(0, 2**31)
PENALTIES = st.sampled_from([0.0, 0.6, 1.0, 2.0, -0.5])


@given(seed=SEEDS, words=st.integers(1, 3), longest=st.integers(1, 4), penalty=PENALTIES, n_best=st.integers(1, 4))
def test_a_beam_as_wide_as_the_tree_is_exhaustive(seed, words, longest, penalty, n_best) -> None:
    tree = Tree.random(seed, 1, words, longest, sharpness=2.0)
    every = tree.every(0, longest, penalty)
    found = search(tree, [longest], beam=max(len(every), n_best), length_penalty=penalty, n_best=n_best)[0]
    assert len(found) == min(n_best, len(every))
    assert all(same(one, other) for one, other in zip(found, every, strict=False))


@given(seed=SEEDS, beam=st.integers(1, 4), penalty=PENALTIES)
def test_a_batch_of_sentences_is_one_at_a_time(seed, beam, penalty) -> None:
    tree, lengths = Tree.random(seed, 4, 3, 4, sharpness=2.0), [4, 1, 3, 4]
    together = search(tree, lengths, beam=beam, length_penalty=penalty, n_best=beam)
    for number, length in enumerate(lengths):
        (alone,) = search(tree, [length], sentence=number, beam=beam, length_penalty=penalty, n_best=beam)
        assert alone == together[number]


@given(seed=SEEDS, penalty=PENALTIES)
def test_one_place_is_greedy(seed, penalty) -> None:
    tree = Tree.random(seed, 1, 3, 5)
    said: list[int] = []
    while len(said) < 4 and (best := int(tree.tables[0][tuple(said)].argmax())) != END:
        said.append(best)
    assert search(tree, [5], beam=1, length_penalty=penalty)[0][0].tokens == said


@given(seed=SEEDS, beam=st.integers(1, 6), penalty=PENALTIES, n_best=st.integers(1, 3))
def test_stopping_early_changes_no_answer(seed, beam, penalty, n_best) -> None:
    tree = Tree.random(seed, 1, 3, 5, sharpness=3.0)
    n_best = min(n_best, beam)
    early = search(tree, [5], beam=beam, length_penalty=penalty, n_best=n_best)[0]
    # asked for as many hypotheses as places it can stop early only when every place is closed
    late = search(tree, [5], beam=beam, length_penalty=penalty, n_best=beam)[0]
    assert early == late[:n_best]


@given(seed=SEEDS, beam=st.integers(1, 3))
def test_on_sequences_of_one_length_the_widest_beam_is_never_beaten(seed, beam) -> None:
    tree, longest = exact_length(Tree.random(seed, 1, 3, 4)), 4
    every = tree.every(0, longest, 1.0)
    widest = search(tree, [longest], beam=len(every))[0][0]
    assert widest.score >= search(tree, [longest], beam=beam)[0][0].score - 1e-6
    assert len(widest.tokens) == longest - 1


def test_between_greedy_and_exhaustive_a_wider_beam_may_lose() -> None:
    # no beam search is monotone in its width, so no such law can be tested: here the second place goes to the worse
    # first word, and both of that word's children are better than any of the best word's, until the last word
    chances = {
        (): [0.6, 0.4, 0.0, 0.0],
        (2,): [0.26, 0.25, 0.25, 0.24],
        (3,): [0.5, 0.5, 0.0, 0.0],
        (2, 2): [1.0, 0.0, 0.0, 0.0],
    }
    table = {}
    for prefix in itertools.chain.from_iterable(itertools.product(range(2, 6), repeat=one) for one in range(3)):
        some = chances.get(prefix, [0.25] * 4)
        table[prefix] = torch.tensor([0.0, 0.0, *some], dtype=torch.float64).log()
    end = torch.tensor([0.0, 1.0, 0.0, 0.0, 0.0, 0.0], dtype=torch.float64).log()
    table |= dict.fromkeys(itertools.product(range(2, 6), repeat=3), end)
    tree = Tree([table], 6)
    greedy, two, all_of_them = (search(tree, [4], beam=beam, length_penalty=0.0)[0][0] for beam in (1, 2, 64))
    assert greedy.tokens == all_of_them.tokens == [2, 2, 2]
    assert greedy.log_probability == pytest.approx(math.log(0.6 * 0.26), abs=1e-6)
    assert two.log_probability == pytest.approx(math.log(0.4 * 0.5 * 0.25), abs=1e-6)


def exact_length(tree: Tree) -> Tree:
    """Forbid the end until the sequence is as long as it may be."""
    longest = max(len(prefix) for prefix in tree.tables[0])
    for table in tree.tables:
        for prefix, scores in table.items():
            if len(prefix) < longest:
                scores[END] = -math.inf
                table[prefix] = scores.log_softmax(dim=0)
    return tree


def test_finished_sentences_cost_nothing() -> None:
    tree = Tree.random(0, 8, 2, 4, sharpness=0.1)
    for table in tree.tables[1:]:
        # these end at once, surely
        table[()] = torch.tensor([-math.inf, 0.0, -math.inf, -math.inf], dtype=torch.float64)
    scorer, state = tree.scorer()
    found = beam_search(scorer, state, max_lengths=[4] * 8, begin=BEGIN, end=END, beam=3)
    assert [one[0].tokens for one in found[1:]] == [[]] * 7
    # eight rows at first, then at most three hypotheses of the one that is left
    assert state.asked <= 8 + 3 * 3


def test_at_its_greatest_length_a_sequence_ends() -> None:
    tree = exact_length(Tree.random(3, 1, 3, 5))
    for table in tree.tables:
        for prefix, scores in table.items():
            if len(prefix) == 2:
                scores[END] = -5.0
    (found,) = search(tree, [3], beam=2)
    assert len(found[0].tokens) == 2


@given(seed=SEEDS, size=st.integers(1, 2000), count=st.integers(1, 6), levels=st.sampled_from([3, 10_000]))
def test_the_largest_are_those_of_topk(seed, size, count, levels) -> None:
    # with few levels, many values are equal
    values = torch.randint(levels, (4, size), generator=torch.Generator().manual_seed(seed)).double()
    values[0] = -math.inf
    count = min(count, size)
    found, places = _largest(values, count)
    assert torch.equal(found, values.topk(count, dim=-1).values)
    assert torch.equal(values.gather(1, places), found)
    assert all(len(set(row)) == count for row in places.tolist())


def test_no_sentence_is_no_answer() -> None:
    assert beam_search(lambda prefixes, state: (prefixes, state), None, max_lengths=[], begin=0, end=1) == []


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beam": 0}, "beam must be at least 1 .greedy., got 0"),
        ({"beam": 2, "n_best": 3}, r"n_best must lie between 1 and the beam \(2\), got 3"),
        ({"max_lengths": [0]}, "max_lengths must be at least 1, for the end, got 0"),
    ],
)
def test_what_cannot_be_searched_is_said(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        search(Tree.random(0, 1, 1, 1), **{"max_lengths": [1], **settings})


def test_samples_follow_the_probabilities() -> None:
    tree = Tree.random(5, 1, 2, 2)
    tree = Tree(tree.tables * 4000, tree.size)
    scorer, state = tree.scorer()
    drawn = sample(
        scorer, state, max_lengths=[2] * 4000, begin=BEGIN, end=END, generator=torch.Generator().manual_seed(0)
    )
    for word, probability in ((END, None), (2, None), (3, None)):
        probability = float(tree.tables[0][()][word].exp())
        share = sum(one.tokens == ([] if word == END else [word]) for one in drawn) / 4000
        assert share == pytest.approx(probability, abs=0.03)


def test_cold_samples_are_greedy() -> None:
    tree = Tree.random(7, 3, 3, 5)
    scorer, state = tree.scorer()
    drawn = sample(scorer, state, max_lengths=[5, 4, 3], begin=BEGIN, end=END, temperature=1e-4)
    assert [one.tokens for one in drawn] == [found[0].tokens for found in search(tree, [5, 4, 3], beam=1)]
    with pytest.raises(ValueError, match="temperature must be positive, got 0"):
        sample(scorer, state, max_lengths=[1], begin=BEGIN, end=END, temperature=0)
