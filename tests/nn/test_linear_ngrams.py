"""Linear classifier of words, pairs and triples: ratios, features, and the regression on them."""

import numpy as np
import pytest
import torch
from scipy.sparse import csr_matrix
from sklearn.linear_model import LogisticRegression

from fna_lightning.nn import LinearNGrams
from fna_lightning.nn.linear_ngrams import log_count_ratios

WORDS = 30


def texts(count: int = 120) -> tuple[list[np.ndarray], np.ndarray]:
    """Return random texts, and labels that say whether word 3 occurs more often than word 4."""
    rng = np.random.default_rng(0)
    rows = [rng.integers(1, WORDS, size=rng.integers(4, 20)) for _ in range(count)]
    labels = np.array([int((row == 3).sum() >= (row == 4).sum()) for row in rows])
    return rows, labels


def fitted(labels: np.ndarray | None = None, **settings: object) -> LinearNGrams:
    rows, own_labels = texts()
    linear = LinearNGrams(WORDS, 2, **{"pairs": 50, "triples": 70, **settings})  # type: ignore[arg-type]
    linear.fit(rows, own_labels if labels is None else labels)
    return linear


def logit(linear: LinearNGrams, row: np.ndarray) -> float:
    return float(linear(torch.from_numpy(row)[None])[0].diff())


def test_ratios_of_known_counts() -> None:
    features = csr_matrix(np.array([[1, 0, 1], [1, 1, 0], [0, 1, 0]], dtype=np.float32))
    # class 0: counts 1 + (1, 0, 1), 5 in all; class 1: 1 + (1, 2, 0), 6 in all
    expected = np.log([2 / 6, 3 / 6, 1 / 6]) - np.log([2 / 5, 1 / 5, 2 / 5])
    assert np.allclose(log_count_ratios(features, np.array([0, 1, 1])), expected)


def test_logits_are_those_of_a_regression_on_the_ratios() -> None:
    rows, labels = texts()
    words = np.zeros((len(rows), WORDS), dtype=np.float32)
    for number, row in enumerate(rows):
        words[number, row] = 1
    counts = [1 + words[labels == label].sum(0) for label in (0, 1)]
    ratios = np.log(counts[1] / counts[1].sum()) - np.log(counts[0] / counts[0].sum())
    expected = LogisticRegression(C=0.1, solver="liblinear").fit(words * ratios, labels)
    linear = fitted(pairs=0, triples=0)
    ours = [logit(linear, row) for row in rows]
    assert np.allclose(ours, expected.decision_function(words * ratios), atol=1e-4)


def test_padding_and_repetitions_change_nothing() -> None:
    linear = fitted(triples=0)
    batch = torch.tensor([[3, 5, 0, 0, 0, 0], [3, 5, 3, 5, 0, 0], [3, 5, 3, 5, 3, 5]])
    logits = linear(batch)
    assert logits[0].allclose(linear(batch[:1, :2])[0])
    # the words 3 and 5, the pairs (3, 5) and (5, 3)
    assert logits[1].allclose(logits[2])
    assert not logits[0].allclose(logits[1])


def test_the_mean_with_a_network_has_the_given_weight() -> None:
    linear, tokens = fitted(share=0.75), torch.tensor([[3, 4, 5], [9, 8, 7]])
    logits = torch.tensor([[4.0, -4.0], [0.0, 8.0]])
    assert linear.combine(logits, tokens).allclose(0.25 * logits + 0.75 * linear(tokens))
    # a network in mixed precision
    assert linear.combine(logits.bfloat16(), tokens).allclose(0.25 * logits + 0.75 * linear(tokens))


def test_before_the_fit_all_logits_are_zero() -> None:
    linear = LinearNGrams(WORDS, 2, pairs=10, triples=10)
    assert not linear.fitted
    assert linear(torch.randint(0, WORDS, (3, 8))).eq(0).all()


def test_a_checkpoint_restores_the_classifier() -> None:
    linear = fitted()
    restored = LinearNGrams(WORDS, 2, pairs=50, triples=70)
    restored.load_state_dict(linear.state_dict())
    assert restored.fitted
    batch = torch.from_numpy(np.stack([row[:4] for row in texts()[0]]))
    assert linear(batch).equal(restored(batch))


def test_no_parameter_is_trained() -> None:
    assert not list(fitted().parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_classes": 3}, "LinearNGrams needs 2 classes, got 3; leave model.linear out"),
        ({"num_classes": 2, "strength": 0.0}, "strength must be positive, got 0.0"),
        ({"num_classes": 2, "share": 1.0}, "share must lie between 0 and 1, got 1.0"),
        ({"num_classes": 2, "pairs": -1}, "pairs"),
    ],
)
def test_wrong_settings(settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        LinearNGrams(WORDS, **settings)


def test_texts_of_one_class_are_an_error() -> None:
    with pytest.raises(
        ValueError, match=r"LinearNGrams has 120 training texts of one class, but needs both classes; use more"
    ):
        fitted(np.zeros(120, dtype=int))
