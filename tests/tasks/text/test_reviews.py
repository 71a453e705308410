"""Generated reviews: deterministic, with long-range dependencies that a bag of words cannot model."""

import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression

from fna_lightning.tasks import ReviewData
from fna_lightning.tasks.text.review_grammar import ASPECTS, RETRACTED, reviews, vocabulary


def test_the_same_seed_gives_the_same_reviews() -> None:
    assert list(reviews(50, seed=3)) == list(reviews(50, seed=3))
    assert list(reviews(50, seed=3)) != list(reviews(50, seed=4))


def test_lengths_words_and_labels() -> None:
    examples = list(reviews(2000, seed=0))
    lengths = [len(text.split()) for text, _ in examples]
    assert min(lengths) >= 20
    assert max(lengths) <= 500
    assert max(lengths) > 400
    words = set(vocabulary())
    assert len(words) > 200
    assert all(word in words for text, _ in examples for word in text.split())
    assert 0.45 < sum(label for _, label in examples) / 2000 < 0.55


def test_the_label_is_the_opinion_unless_it_is_retracted() -> None:
    for text, label in reviews(500, seed=1):
        words = text.split()
        ((aspect, opinion),) = {
            (name, word) for name, (good, bad, _) in ASPECTS.items() for word in words if word in good + bad
        }
        good, _, synonym = ASPECTS[aspect]
        assert label == int((opinion in good) != (synonym in words))
        if synonym in words:
            assert abs(words.index(synonym) - words.index(opinion)) > 3


def test_a_bag_of_words_and_bigrams_learns_only_the_opinion() -> None:
    texts, labels = zip(*reviews(6000, seed=0), strict=True)
    counts = CountVectorizer(ngram_range=(1, 2), binary=True).fit_transform(texts)
    score = LogisticRegression(max_iter=200).fit(counts[:5000], labels[:5000]).score(counts[5000:], labels[5000:])
    assert score < 1 - RETRACTED + 0.05


def test_splits_contain_different_reviews() -> None:
    data = ReviewData(train_size=200, eval_size=200)
    contents = [data.split(name).tokens.tobytes() for name in ("train", "val", "test")]
    assert len(set(contents)) == 3
    assert ReviewData(train_size=200, eval_size=200).split("train").tokens.tobytes() == contents[0]


def test_unknown_words_have_their_own_id() -> None:
    data = ReviewData()
    assert data.encode("The plot was floccinaucinihilipilification")[-1] == 1
    assert max(data.split("val").tokens) < data.vocab_size


@pytest.mark.parametrize(("settings", "message"), [
    ({"longest": 10}, "longest must be at least 30 words.*got 10"),
    ({"train_size": 0}, "train_size and eval_size must be at least 1, got 0"),
    ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
])  # fmt: skip
def test_invalid_settings_raise(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ReviewData(**settings)
