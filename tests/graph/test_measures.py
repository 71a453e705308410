"""``measure``: every measure by name."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.graph import MEASURES, algebraic_connectivity, direction, effective_neighbors, measure

from helpers.matrices import random_matrix


def padded_batch() -> tuple[torch.Tensor, torch.Tensor]:
    weights = torch.zeros(2, 3, 6, 6, dtype=torch.float64)
    weights[0] = torch.stack([random_matrix(6, seed) for seed in range(3)])
    weights[1, :, :4, :4] = torch.stack([random_matrix(4, seed) for seed in range(3, 6)])
    return weights, torch.tensor([6, 4])


def test_every_measure_is_a_number_of_each_matrix() -> None:
    weights, lengths = padded_batch()
    values = measure(weights, lengths)
    assert tuple(values) == MEASURES
    for value in values.values():
        assert value.shape == (2, 3)
        assert value.dtype == torch.float64
        assert value.isfinite().all()


def test_values_equal_the_functions() -> None:
    weights, lengths = padded_batch()
    values = measure(weights, lengths, ["direction", "algebraic_connectivity", "effective_neighbors"])
    assert list(values) == ["direction", "algebraic_connectivity", "effective_neighbors"]
    assert_close(values["direction"], direction(weights, lengths))
    assert_close(values["algebraic_connectivity"], algebraic_connectivity(weights, lengths))
    # padded queries do not count
    assert_close(values["effective_neighbors"][0], effective_neighbors(weights[0]).mean(dim=-1))
    assert_close(values["effective_neighbors"][1], effective_neighbors(weights[1, :, :4, :4]).mean(dim=-1))


def test_effective_neighbors_of_known_rows() -> None:
    # rows with 1, 2 and 3 equal weights
    rows = torch.tensor([[1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    assert measure(rows, names=["effective_neighbors"])["effective_neighbors"].item() == pytest.approx(2.0)


def test_an_unknown_measure_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown measure 'gap'; choose from spectral_gap, entropy"):
        measure(torch.eye(3), names=["gap"])
