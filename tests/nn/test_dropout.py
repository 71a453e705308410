"""Dropout: correct on average, the same pattern forward and backward, seeded by PyTorch."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from fna_lightning import available_kernels
from fna_lightning.attention.kernels.cpu import dropout as cpu_dropout
from fna_lightning.attention.kernels.cpu import library as cpu_library
from fna_lightning.nn.dropout import Dropout

needs_c = pytest.mark.skipif(available_kernels()["cpu"] != "ok", reason=available_kernels()["cpu"])
SHAPES = [(1,), (17,), (3, 5, 7), (40_003,), (4, 128, 257)]


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_values_are_dropped_or_scaled(shape: tuple[int, ...], p: float) -> None:
    x = torch.randn(shape) + 3.0
    out = Dropout(p)(x)
    kept = out != 0
    assert_close(out[kept], x[kept] / (1 - p))


@pytest.mark.parametrize("p", [0.1, 0.37, 0.9])
def test_fraction_dropped_is_p(p: float) -> None:
    count = 1_000_000
    dropped = (Dropout(p)(torch.ones(count)) == 0).sum().item()
    assert abs(dropped - p * count) < 5 * (count * p * (1 - p)) ** 0.5


def test_neighbors_and_calls_are_independent() -> None:
    layer = Dropout(0.5)
    first, second = (layer(torch.ones(1000, 1000)) != 0 for _ in range(2))
    neighbors = ((first[1:], first[:-1]), (first[:, 1:], first[:, :-1]), (first[64:], first[:-64]))
    for a, b in ((first, second), *neighbors):
        both = (a & b).double().mean().item()
        assert abs(both - 0.25) < 5 * (0.25 * 0.75 / 1e6) ** 0.5


def test_forward_and_backward_use_the_same_pattern() -> None:
    x = torch.randn(50, 300, requires_grad=True)
    out = Dropout(0.3)(x)
    out.backward(torch.full_like(out, 2.0))
    assert_close(x.grad, torch.where(out != 0, 2.0 / 0.7, 0.0))


def test_torch_seed_determines_the_pattern() -> None:
    x, layer = torch.ones(10_000), Dropout(0.5)
    outs = []
    for seed in (1, 1, 2):
        torch.manual_seed(seed)
        outs.append(layer(x))
    assert torch.equal(outs[0], outs[1])
    assert not torch.equal(outs[0], outs[2])


@needs_c
def test_threads_do_not_change_the_pattern() -> None:
    x = torch.ones(300_000)
    before = torch.get_num_threads()
    outs = []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            torch.manual_seed(0)
            outs.append(cpu_dropout.dropout(x, 0.5))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(*outs)


def test_view_and_empty_tensor() -> None:
    x = torch.arange(1.0, 13.0).view(3, 4).T
    out = Dropout(0.5)(x)
    assert torch.equal(out[out != 0], 2 * x[out != 0])
    assert Dropout(0.5)(torch.empty(0, 3)).shape == (0, 3)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_probability_zero_and_one(p: float) -> None:
    x = torch.ones(5)
    assert torch.equal(Dropout(p)(x), (1 - p) * x)


def test_evaluation_changes_nothing() -> None:
    x = torch.randn(5)
    assert Dropout(0.5).eval()(x) is x


def test_second_derivative() -> None:
    x = torch.randn(20, requires_grad=True)
    torch.manual_seed(0)
    out = Dropout(0.5)(x)
    (grad,) = torch.autograd.grad((out**2).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    assert_close(second, torch.where(out != 0, 8.0, 0.0))


def test_other_dtypes_use_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_library, "run", lambda *_: pytest.fail("the C library supports float32 only"))
    assert Dropout(0.5)(torch.ones(8, dtype=torch.float64)).dtype == torch.float64
    assert Dropout(0.5)(torch.ones(8, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_export_uses_pytorch() -> None:
    model = nn.Sequential(nn.Linear(4, 4), Dropout(0.5)).train()
    names = {str(node.target) for node in torch.export.export(model, (torch.ones(2, 4),)).graph.nodes}
    assert any("dropout" in name for name in names)


def test_dropout_rate_and_mean() -> None:
    torch.manual_seed(0)
    x = torch.ones(1003, 301)
    y = Dropout(0.3).train()(x)
    assert_close((y == 0).double().mean().item(), 0.3, rtol=0, atol=5e-3)
    assert_close(y.double().mean().item(), 1.0, rtol=0, atol=5e-3)
    # The dropout rate is the same at every position of a group of seven.
    assert_close(
        (y == 0).double().view(-1)[: 7 * 40_000].view(-1, 7).mean(0), torch.full((7,), 0.3).double(), rtol=0, atol=0.01
    )
    assert Dropout(0.3).eval()(x) is x
