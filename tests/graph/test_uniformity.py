"""Entropy, total variation and effective rank at their extremes and in between."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from fna_lightning.graph import effective_rank, row_entropy, tv_to_uniform

from helpers.matrices import random_matrix


@given(n=st.integers(2, 40))
def test_uniform_attention(n: int) -> None:
    matrix = torch.full((n, n), 1 / n, dtype=torch.float64)
    assert_close(row_entropy(matrix).item(), 1.0)
    assert_close(tv_to_uniform(matrix).item(), 0.0)
    assert_close(effective_rank(matrix).item(), 1.0)


@given(n=st.integers(2, 40), seed=st.integers(0, 2**31))
def test_a_permutation_is_farthest_from_uniform(n: int, seed: int) -> None:
    matrix = torch.eye(n)[torch.randperm(n, generator=torch.Generator().manual_seed(seed))]
    assert_close(row_entropy(matrix).item(), 0.0)
    assert_close(tv_to_uniform(matrix).item(), 1 - 1 / n)
    assert_close(effective_rank(matrix).item(), float(n))


def test_a_row_uniform_over_k_keys() -> None:
    matrix = torch.zeros(8, 8, dtype=torch.float64)
    matrix[:, :4] = 1 / 4
    assert_close(row_entropy(matrix).item(), math.log(4) / math.log(8))
    assert_close(tv_to_uniform(matrix).item(), 0.5)


def test_effective_rank_of_known_singular_values() -> None:
    # singular values 1 and 1/2: exp(H(2/3, 1/3)) = 3 / 4^(1/3)
    matrix = torch.tensor([[0.75, 0.25], [0.25, 0.75]])
    assert_close(effective_rank(matrix).item(), 3 / 4 ** (1 / 3))


@given(n=st.integers(1, 20), pad=st.integers(0, 5), seed=st.integers(0, 2**31))
def test_padding_is_ignored(n: int, pad: int, seed: int) -> None:
    matrix = random_matrix(n, seed)
    padded = torch.nn.functional.pad(matrix, (0, pad, 0, pad), value=torch.nan)
    for measure in (row_entropy, tv_to_uniform, effective_rank):
        assert_close(measure(padded[None], torch.tensor([n]))[0], measure(matrix))


@pytest.mark.parametrize(("measure", "expected"), [(row_entropy, 1.0), (tv_to_uniform, 0.0), (effective_rank, 1.0)])
def test_one_token_counts_as_uniform(measure, expected: float) -> None:
    assert measure(torch.ones(1, 1)).item() == expected
