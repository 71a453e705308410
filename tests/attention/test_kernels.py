"""Choosing a kernel: by name, by itself, and the reason when it cannot be."""

import logging

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning import attention_weights, available_kernels, fractional_attention
from fna_lightning.attention import DotProduct, Fractional, Spherical
from fna_lightning.attention.kernels import KERNELS, chosen_kernels

from helpers.attention_cases import TOLERANCE, qkv


def test_every_kernel_says_ok_or_why_not() -> None:
    said = available_kernels()
    assert said.keys() == KERNELS.keys()
    assert said["reference"] == said["chunked"] == said["sdpa"] == "ok"
    assert all(said.values())


def test_the_first_call_logs_the_choice_once(caplog: pytest.LogCaptureFixture) -> None:
    attention = Fractional(2.0, kappa=0.123)
    q, k, v = qkv()
    with caplog.at_level(logging.INFO, logger="fna_lightning"):
        attention(q, k, v)
        attention(q, k, v)
    assert [r.message for r in caplog.records] == [f"{attention} is computed by the 'sdpa' kernel"]
    assert chosen_kernels()[repr(attention)] == "sdpa"


def test_a_named_kernel_that_cannot_is_an_error_with_the_way_out() -> None:
    q, k, v = qkv()
    with pytest.raises(
        RuntimeError, match=r"kernel 'sdpa' cannot run here: .*alpha=1.2.*use kernel='auto' or one of .*chunked"
    ):
        fractional_attention(q, k, v, alpha=1.2, kernel="sdpa")
    with pytest.raises(RuntimeError, match="density_power"):
        DotProduct(density_power=1.0, kernel="sdpa")(q, q, q)


def test_an_unknown_kernel_is_named() -> None:
    with pytest.raises(ValueError, match=r"unknown kernel 'warp'; choose one of auto, .*reference"):
        DotProduct(kernel="warp")


@pytest.mark.parametrize("shape", [(5, 8), (3, 5, 8), (2, 3, 5, 8), (2, 2, 3, 5, 8)])
@pytest.mark.parametrize("alpha", [1.2, 2.0])
def test_any_number_of_leading_axes(shape: tuple[int, ...], alpha: float) -> None:
    q, k, v = torch.randn(3, *shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    weights = attention_weights(q, k, alpha=alpha)
    assert weights.shape == (*shape[:-1], shape[-2])
    for name in ("auto", "reference", "chunked"):
        assert_close(fractional_attention(q, k, v, alpha=alpha, kernel=name), weights @ v)


def test_the_function_takes_its_mask_as_sdpa_does() -> None:
    q, k, v = qkv()
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    got = DotProduct()(q, k, v, mask)
    assert_close(got, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    q, k, v = qkv(5, 5)
    assert_close(DotProduct()(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))


def test_the_function_on_the_sphere_uses_the_head_width() -> None:
    q, k, _ = qkv(batch=(2, 1))
    assert_close(attention_weights(q, k, manifold="sphere"), Spherical(intrinsic_dim=8)(q, k, torch.eye(7).double()))


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("alpha", [1.2, 2.0])
def test_bfloat16_error_is_bounded_at_every_token_scale(alpha: float, scale: float) -> None:
    q, k, v = (t.detach() for t in qkv(65, 65, 64, dtype=torch.bfloat16))
    q, k = scale * q, scale * k
    for kernel in ("auto", "chunked"):
        got = fractional_attention(q, k, v, alpha=alpha, kernel=kernel)
        want = fractional_attention(q.double(), k.double(), v.double(), alpha=alpha, kernel="reference")
        assert got.dtype == torch.bfloat16
        assert_close(got.double(), want, rtol=0, atol=TOLERANCE[torch.bfloat16])


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
def test_float16_does_not_overflow(scale: float) -> None:
    q, k, v = (t.detach() for t in qkv(33, 33, 64, dtype=torch.float16))
    got = fractional_attention(scale * q, scale * k, v, alpha=2.0)
    want = fractional_attention((scale * q).double(), (scale * k).double(), v.double(), alpha=2.0)
    assert_close(got.double(), want, rtol=0, atol=2e-3)


def test_torch_compile_sees_through() -> None:
    q, k, v = qkv(9, 9, dtype=torch.float32)
    compiled = torch.compile(lambda q, k, v: fractional_attention(q, k, v, alpha=2.0), backend="aot_eager")
    assert_close(compiled(q, k, v), fractional_attention(q, k, v, alpha=2.0))
