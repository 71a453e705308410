"""Attention under autocast: the linear layers return bfloat16, and a tensor that skips them stays float32."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.attention import (
    Attention,
    DotProduct,
    Fractional,
    LinearProjection,
    MultiheadAttention,
    OrthogonalProjection,
    Spherical,
)
from fna_lightning.attention.autocast import autocast_type, with_autocast_type

from helpers.attention_cases import TOLERANCE

CPU = torch.device("cpu")


def test_the_autocast_dtype_of_a_device() -> None:
    assert autocast_type(CPU) is None
    assert autocast_type(torch.device("meta")) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert autocast_type(CPU) == torch.bfloat16
        with with_autocast_type(None, CPU):
            assert autocast_type(CPU) is None
        assert autocast_type(CPU) == torch.bfloat16
    with with_autocast_type(torch.bfloat16, CPU):
        assert autocast_type(CPU) == torch.bfloat16


# with one head an orthogonal projection leaves the queries in float32
@pytest.mark.parametrize(("projection", "heads"), [(LinearProjection, 3), (OrthogonalProjection, 1)])
@pytest.mark.parametrize(
    "attention",
    [
        Fractional(1.2),
        Fractional(2.0),
        Spherical(1.2),
        DotProduct(),
        Fractional(1.2, kernel="chunked"),
        Fractional(1.2, kernel="reference"),
    ],
    ids=repr,
)
def test_output_and_gradients_equal_float32_up_to_rounding(attention: Attention, projection, heads: int) -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(12, heads, attention, projection)
    x = torch.randn(2, 9, 12)
    exact = layer(x)
    exact_grads = torch.autograd.grad(exact.square().sum(), list(layer.parameters()))
    with torch.autocast("cpu", torch.bfloat16):
        out = layer(x)
    assert out.dtype == torch.bfloat16
    grads = torch.autograd.grad(out.float().square().sum(), list(layer.parameters()))
    for got, want in zip((out, *grads), (exact, *exact_grads), strict=True):
        scale = want.abs().max()
        assert_close(got.float() / scale, want / scale, rtol=0, atol=2 * TOLERANCE[torch.bfloat16])
