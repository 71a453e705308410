"""Attention rollout across layers."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.testing import assert_close

from fna_lightning.graph import rollout

from helpers.matrices import random_matrix


@given(n=st.integers(1, 10), layers=st.integers(1, 4), seed=st.integers(0, 2**31), residual=st.floats(0, 1))
def test_a_rollout_is_row_stochastic(n: int, layers: int, seed: int, residual: float) -> None:
    stack = torch.stack([random_matrix(n, seed + layer) for layer in range(layers)])
    result = rollout(stack, residual=residual)
    assert (result >= 0).all()
    assert_close(result.sum(dim=-1), torch.ones(n, dtype=torch.float64))


def test_the_last_layer_is_leftmost() -> None:
    first, last = random_matrix(4, 0), random_matrix(4, 1)
    eye = torch.eye(4, dtype=torch.float64)
    assert_close(rollout([first, last]), (last + eye) / 2 @ ((first + eye) / 2))
    assert_close(rollout([first, last], residual=0), last @ first)


def test_padding_gets_no_weight() -> None:
    batch = torch.zeros(2, 1, 4, 4, dtype=torch.float64)
    batch[0, 0], batch[1, 0, :2, :2] = random_matrix(4, 0), random_matrix(2, 1)
    result = rollout([batch, batch], torch.tensor([4, 2]))
    assert_close(result[1, 0, :2, :2], rollout([batch[1, 0, :2, :2]] * 2))
    assert result[1, 0, 2:].eq(0).all()
    assert result[1, 0, :, 2:].eq(0).all()


def test_layers_of_several_sequences_and_heads() -> None:
    """Each sequence and head is rolled out by itself; heads may be averaged first."""
    layers = [torch.stack([random_matrix(4, 10 * layer + seed) for seed in range(6)]) for layer in range(3)]
    layers = [layer.reshape(2, 3, 4, 4) for layer in layers]
    result = rollout(layers)
    assert result.shape == (2, 3, 4, 4)
    assert_close(result[1, 2], rollout([layer[1, 2] for layer in layers]))
    means = rollout([layer.mean(dim=1) for layer in layers])
    assert means.shape == (2, 4, 4)
    assert_close(means[1], rollout([layer[1].mean(dim=0) for layer in layers]))
    # one tensor with the layers in its first dimension is a list of them
    assert_close(rollout(torch.stack(layers)), result)


def test_invalid_arguments() -> None:
    with pytest.raises(ValueError, match="at least one layer, got 0"):
        rollout([])
    with pytest.raises(ValueError, match=r"residual must lie in \[0, 1\], got 2"):
        rollout([torch.eye(2)], residual=2.0)
    with pytest.raises(ValueError, match=r"agree in shape, got \(2, 2\) and \(3, 3\)"):
        rollout([torch.eye(2), torch.eye(3)])
