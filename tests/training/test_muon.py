"""Muon for matrices and AdamW for other parameters in one optimizer."""

import copy
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from fna_lightning.training.muon import COEFFICIENTS, ITERATIONS, MuonAdamW, orthogonalized
from fna_lightning.training.schedules import WarmupCosine


@pytest.fixture
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.Flatten(), nn.Linear(8 * 16, 5))


def train(net: nn.Module, optimizer: torch.optim.Optimizer, steps: range) -> None:
    for step in steps:
        images = torch.randn(4, 3, 6, 6, generator=torch.Generator().manual_seed(step))
        optimizer.zero_grad()
        net(images).square().sum().backward()
        optimizer.step()


@pytest.mark.parametrize("shape", [(6, 20), (20, 6), (9, 9)])
def test_singular_vectors_stay_and_singular_values_become_about_one(shape) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    u, values, v = torch.linalg.svd(matrix, full_matrices=False)
    values /= values.norm()
    for _ in range(ITERATIONS):
        values = sum(factor * values**power for factor, power in zip(COEFFICIENTS, (1, 3, 5), strict=True))
    assert_close(orthogonalized(matrix), u @ torch.diag(values) @ v)
    assert 0.65 < values.min() < values.max() < 1.25


def test_step_of_a_filter_is_that_of_its_matrix() -> None:
    torch.manual_seed(0)
    start, gradients = torch.randn(8, 3, 3, 3), torch.randn(2, 8, 3, 3, 3)
    param = nn.Parameter(start.clone())
    optimizer = MuonAdamW([param], lr=0.1, momentum=0.9, weight_decay=0.5)
    for gradient in gradients:
        param.grad = gradient
        optimizer.step()
    expected, momentum = start.flatten(1), torch.zeros(8, 27)
    for gradient in gradients.flatten(2):
        momentum = 0.9 * momentum + 0.1 * gradient
        update = orthogonalized(0.1 * gradient + 0.9 * momentum)
        expected = expected * (1 - 0.1 * 0.5) - 0.1 * update
    assert_close(param.data.flatten(1), expected)


def test_tall_matrices_have_larger_steps() -> None:
    param = nn.Parameter(torch.zeros(64, 4))
    param.grad = torch.linalg.qr(torch.randn(64, 4)).Q
    MuonAdamW([param], lr=0.1).step()
    assert_close(param.norm(), orthogonalized(param.grad).norm() * 0.1 * 4)


def test_vectors_follow_adamw(net) -> None:
    other = copy.deepcopy(net)
    vectors = [param for param in other.parameters() if param.ndim == 1]
    expected = torch.optim.AdamW(vectors, lr=0.01, weight_decay=0.0)
    optimizer = MuonAdamW(net.parameters(), lr=0.0, adam_lr=0.01)
    train(net, optimizer, range(5))
    train(other, expected, range(5))
    for param, reference in zip(net.parameters(), other.parameters(), strict=True):
        assert_close(param, reference)


def test_large_tables_follow_adamw() -> None:
    tables = [nn.Parameter(torch.zeros(rows, 4)) for rows in (10, 11)]
    optimizer = MuonAdamW(tables, lr=0.1, adam_lr=0.01, largest=10)
    for table in tables:
        table.grad = torch.ones_like(table)
    optimizer.step()
    # The first step of AdamW has the size of its learning rate, that of Muon is about a matrix of rank 1.
    assert_close(tables[1].data, torch.full((11, 4), -0.01))
    assert_close(tables[0].data, -0.1 * 2.5**0.5 * orthogonalized(torch.ones(10, 4)))


def test_a_saved_state_continues_exactly(net) -> None:
    whole, part = copy.deepcopy(net), net
    train(whole, MuonAdamW(whole.parameters()), range(6))
    first = MuonAdamW(part.parameters())
    train(part, first, range(3))
    second = MuonAdamW(part.parameters())
    second.load_state_dict(copy.deepcopy(first.state_dict()))
    train(part, second, range(3, 6))
    for param, reference in zip(part.parameters(), whole.parameters(), strict=True):
        assert_close(param, reference, rtol=0, atol=0)


def test_a_schedule_moves_both_rates(net) -> None:
    optimizer = MuonAdamW(net.parameters(), lr=0.02, adam_lr=0.001)
    schedule = WarmupCosine(optimizer, warmup=0.5)
    schedule.set_total_steps(10)
    rates = []
    for _ in range(10):
        optimizer.step()
        schedule.step()
        rates.append([group["lr"] for group in optimizer.param_groups])
    assert max(rates) == pytest.approx([0.02, 0.001])
    assert all(high / low == pytest.approx(20) for high, low in rates if low)
    assert any(first > second for (first, _), (second, _) in pairwise(rates))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"lr": -1.0}, "lr must not be negative, got -1.0"),
        ({"adam_lr": float("nan")}, "adam_lr must not be negative, got nan"),
        ({"momentum": 1.0}, r"momentum must lie in \[0, 1\), got 1.0"),
    ],
)
def test_bad_settings(net, settings, message) -> None:
    with pytest.raises(ValueError, match=message):
        MuonAdamW(net.parameters(), **settings)
