"""FractionalMultiheadAttention answers every call as nn.MultiheadAttention does: shapes, dtypes and error types."""

import inspect
from pathlib import Path

import pytest
from torch import nn

from fna_lightning.attention import FractionalMultiheadAttention

from helpers.torch_parity import CASES, ParityCase, outcome, parity_table

pytestmark = pytest.mark.filterwarnings("ignore:Support for mismatched")


@pytest.mark.parametrize("training", [True, False], ids=["training", "evaluation"])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_the_same_answer_as_pytorch(case: ParityCase, training: bool) -> None:
    want = outcome(nn.MultiheadAttention, case, training=training)
    assert outcome(FractionalMultiheadAttention, case, training=training) == want


def test_the_cases_contain_answers_and_errors() -> None:
    answers = [outcome(nn.MultiheadAttention, case, training=True) for case in CASES]
    errors = {answer for answer in answers if isinstance(answer, type)}
    assert errors == {AssertionError, RuntimeError, TypeError, ValueError}
    assert sum(not isinstance(answer, type) for answer in answers) >= 36
    assert len({case.name for case in CASES}) == len(CASES)


@pytest.mark.parametrize("method", ["__init__", "forward"])
def test_arguments_by_position(method: str) -> None:
    """The arguments of PyTorch's layer come first, in its order and with its defaults; further ones need a name."""
    pytorch, ours = (
        list(inspect.signature(getattr(layer, method)).parameters.values())
        for layer in (nn.MultiheadAttention, FractionalMultiheadAttention)
    )
    assert [(p.name, p.default) for p in ours[: len(pytorch)]] == [(p.name, p.default) for p in pytorch]
    assert all(p.kind in (p.KEYWORD_ONLY, p.VAR_KEYWORD) for p in ours[len(pytorch) :])


def test_the_table_in_the_documentation() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/parity.md").read_text()
    assert parity_table() in page, "write the output of `python -m helpers.torch_parity` (in tests/) to the page"
    assert f"The {len(CASES)} calls" in page
    assert f"{len(CASES)} calls were made to both layers" in page
