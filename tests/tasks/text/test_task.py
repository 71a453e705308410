"""Options of text classification that follow the authors' code."""

import math

import pytest
import torch
from lightning.pytorch import LightningDataModule, Trainer
from torch.testing import assert_close

from fna_lightning.attention import Uniform
from fna_lightning.errors import UsageError
from fna_lightning.nn import EncoderConfig, LinearNGrams
from fna_lightning.tasks import ReviewData, TextClassification
from fna_lightning.tasks.text.data import TextBatch

pytestmark = pytest.mark.e2e


def task(**options: object) -> TextClassification:
    torch.manual_seed(0)
    return TextClassification(9, 2, Uniform(), EncoderConfig(dim=4, dropout=0.0), **options)  # type: ignore[arg-type]


def certain_and_correct(classifier: TextClassification) -> TextBatch:
    """Set the logits of every text to [50, -50] and return a batch of class 0."""
    with torch.no_grad():
        classifier.head.weight.zero_()
        classifier.head.bias.copy_(torch.tensor([50.0, -50.0]))
    return TextBatch(torch.ones(3, 5, dtype=torch.long), torch.full((3,), 5), torch.zeros(3, dtype=torch.long))


@pytest.mark.parametrize(("twice", "loss"), [(False, 0.0), (True, math.log(1 + math.exp(-1)))])
def test_second_softmax_bounds_the_loss_from_below(twice, loss) -> None:
    classifier = task(softmax_twice=twice)
    assert_close(classifier.loss(certain_and_correct(classifier), "train").item(), loss)


def test_second_softmax_does_not_change_the_logits() -> None:
    once, twice = task().eval(), task(softmax_twice=True).eval()
    tokens, lengths = torch.randint(1, 9, (4, 6)), torch.full((4,), 6)
    assert_close(once(tokens, lengths), twice(tokens, lengths))


def test_padding_matters_only_for_max_all() -> None:
    tokens, longer = torch.tensor([[3, 4]]), torch.tensor([[3, 4, 0, 0]])
    lengths = torch.tensor([2])
    for pooling, same in (("mean", True), ("max", True), ("max_all", False)):
        classifier = task(pooling=pooling).eval()
        assert torch.allclose(classifier(tokens, lengths), classifier(longer, lengths), atol=1e-6) is same


def test_reviews_padded_to_the_maximum_length() -> None:
    data = ReviewData(train_size=4, eval_size=4, longest=50, batch_size=2, pad_to_max=True)
    assert {batch.tokens.size(1) for batch in data.val_dataloader()} == {50}


def with_linear_classifier(vocab_size: int) -> TextClassification:
    torch.manual_seed(0)
    return TextClassification(
        vocab_size,
        2,
        Uniform(),
        EncoderConfig(dim=4, dropout=0.0),
        linear=lambda size, classes: LinearNGrams(size, classes, pairs=500, triples=500),
    )


def trainer() -> Trainer:
    return Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )


def test_a_linear_classifier_is_fitted_before_training_and_its_accuracy_is_logged() -> None:
    data = ReviewData(train_size=400, eval_size=100, longest=30, batch_size=50)
    classifier = with_linear_classifier(data.vocab_size)
    run = trainer()
    run.fit(classifier, data)
    linear = classifier.linear
    assert linear is not None
    assert linear.fitted
    classifier.eval()
    batches = list(data.val_dataloader())
    correct = [linear(batch.tokens).argmax(1) == batch.labels for batch in batches]
    assert_close(run.callback_metrics["val/linear_accuracy"], torch.cat(correct).float().mean())
    assert run.callback_metrics["val/linear_accuracy"] > 0.6
    assert "train/network_accuracy" not in run.callback_metrics
    batch = batches[0]
    network = classifier.network_logits(batch.tokens, batch.lengths)
    assert_close(classifier(batch.tokens, batch.lengths), 0.5 * network + 0.5 * linear(batch.tokens))


def test_the_network_is_trained_without_the_linear_classifier() -> None:
    tokens, lengths = torch.randint(1, 9, (4, 6)), torch.full((4,), 6)
    batch = TextBatch(tokens, lengths, torch.tensor([0, 1, 0, 1]))
    with_linear, without = with_linear_classifier(9).eval(), task().eval()
    with_linear.linear.bias.fill_(10.0)  # type: ignore[union-attr]
    for classifier in (with_linear, without):
        classifier.log = lambda *_, **__: None  # type: ignore[method-assign]
    assert_close(with_linear.loss(batch, "train"), without.loss(batch, "train"))
    assert with_linear.loss(batch, "val") > without.loss(batch, "val") + 1.0


def test_a_linear_classifier_needs_texts() -> None:
    class OtherData(LightningDataModule):
        def train_dataloader(self) -> list[TextBatch]:
            return [TextBatch(torch.ones(2, 3, dtype=torch.long), torch.full((2,), 3), torch.tensor([0, 1]))]

    with pytest.raises(UsageError, match=r"model.linear is fitted to the training split of a TextData, got OtherData"):
        trainer().fit(with_linear_classifier(9), OtherData())
