"""Fused linear layer and cross entropy."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.nn import linear_cross_entropy


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_linear_cross_entropy_and_its_gradients(smoothing: float) -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(600, 8, generator=generator, dtype=torch.float64).requires_grad_()
    w = torch.randn(50, 8, generator=generator, dtype=torch.float64).requires_grad_()
    y = torch.randint(0, 50, (600,), generator=generator)
    got, plain, accuracy = linear_cross_entropy(x, w, y, smoothing)
    want = torch.nn.functional.cross_entropy(x @ w.mT, y, label_smoothing=smoothing)
    assert_close(got, want)
    assert_close(plain, torch.nn.functional.cross_entropy(x @ w.mT, y))
    assert_close(accuracy, ((x @ w.mT).argmax(dim=-1) == y).double().mean())
    for a, b in zip(torch.autograd.grad(3.0 * got, (x, w)), torch.autograd.grad(3.0 * want, (x, w)), strict=True):
        assert_close(a, b)
