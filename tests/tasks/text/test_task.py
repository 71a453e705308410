"""The options of text classification that are the authors' choices."""

import math

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.attention import Uniform
from fna_lightning.nn import Encoder
from fna_lightning.tasks import ReviewData, TextClassification
from fna_lightning.tasks.text.data import TextBatch


def task(**options: object) -> TextClassification:
    torch.manual_seed(0)
    return TextClassification(9, 2, Uniform(), lambda attention: Encoder(attention, dim=4, dropout=0.0), **options)  # type: ignore[arg-type]


def sure_and_right(one: TextClassification) -> TextBatch:
    with torch.no_grad():
        one.head.weight.zero_()
        one.head.bias.copy_(torch.tensor([50.0, -50.0]))
    return TextBatch(torch.ones(3, 5, dtype=torch.long), torch.full((3,), 5), torch.zeros(3, dtype=torch.long))


@pytest.mark.parametrize(("twice", "cost"), [(False, 0.0), (True, math.log(1 + math.exp(-1)))])
def test_a_second_softmax_leaves_a_cost_that_no_answer_avoids(twice, cost) -> None:
    one = task(softmax_twice=twice)
    assert_close(one.loss(sure_and_right(one), "train").item(), cost)


def test_a_second_softmax_changes_no_answer() -> None:
    one, other = task().eval(), task(softmax_twice=True).eval()
    tokens, lengths = torch.randint(1, 9, (4, 6)), torch.full((4,), 6)
    assert_close(one(tokens, lengths), other(tokens, lengths))


def test_padding_reaches_the_answer_only_by_max_all() -> None:
    tokens, longer = torch.tensor([[3, 4]]), torch.tensor([[3, 4, 0, 0]])
    lengths = torch.tensor([2])
    for pooling, same in (("mean", True), ("max", True), ("max_all", False)):
        one = task(pooling=pooling).eval()
        assert torch.allclose(one(tokens, lengths), one(longer, lengths), atol=1e-6) is same


def test_reviews_padded_to_their_limit() -> None:
    data = ReviewData(train_size=4, eval_size=4, longest=50, batch_size=2, pad_to_max=True)
    assert {batch.tokens.size(1) for batch in data.val_dataloader()} == {50}
