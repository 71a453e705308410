"""The choice of a kernel, by name and by "auto", and the reasons for a refusal."""

import logging

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning import attention_weights, available_kernels, fractional_attention
from fna_lightning.attention import DotProduct, Fractional, MultiheadAttention, Spherical
from fna_lightning.attention.kernels import KERNELS, chosen_kernels

from helpers.attention_cases import TOLERANCE, qkv


def test_every_kernel_is_ok_or_has_a_reason() -> None:
    kernels = available_kernels()
    assert kernels.keys() == KERNELS.keys()
    assert kernels["reference"] == kernels["chunked"] == kernels["sdpa"] == "ok"
    assert all(kernels.values())


def test_the_first_call_logs_the_choice_once(caplog: pytest.LogCaptureFixture) -> None:
    attention = Fractional(2.0, kappa=0.123)
    q, k, v = qkv()
    with caplog.at_level(logging.INFO, logger="fna_lightning"):
        attention(q, k, v)
        attention(q, k, v)
    assert [r.message for r in caplog.records] == [f"{attention} is computed by the 'sdpa' kernel"]
    assert chosen_kernels(attention)[repr(attention)] == "sdpa"


def test_a_named_kernel_that_cannot_run_raises() -> None:
    q, k, v = qkv()
    with pytest.raises(
        RuntimeError, match=r"kernel 'sdpa' cannot run here: .*alpha=1.2.*use kernel='auto' or one of .*chunked"
    ):
        fractional_attention(q, k, v, alpha=1.2, kernel="sdpa")
    with pytest.raises(RuntimeError, match="density_power"):
        DotProduct(density_power=1.0, kernel="sdpa")(q, q, q)


def test_an_unknown_kernel_raises() -> None:
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


def test_masks_have_the_meaning_of_sdpa() -> None:
    q, k, v = qkv()
    mask = torch.rand(2, 1, 5, 7, generator=torch.Generator().manual_seed(0)) < 0.5
    got = DotProduct()(q, k, v, mask)
    assert_close(got, F.scaled_dot_product_attention(q, k, v, attn_mask=mask))
    q, k, v = qkv(5, 5)
    assert_close(DotProduct()(q, k, v, is_causal=True), F.scaled_dot_product_attention(q, k, v, is_causal=True))


@pytest.mark.parametrize(
    ("batch", "intrinsic_dim"),
    [((), 7), ((1,), 7), ((2, 1), 7), ((3,), 8), ((2, 3), 8), ((4, 2, 3), 8)],
    ids=["no heads axis", "one head", "batch, one head", "three heads", "batch, three heads", "two batch axes"],
)
@pytest.mark.parametrize("alpha", [1.2, 2.0])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_function_and_module_have_one_intrinsic_dim_on_the_sphere(
    batch: tuple[int, ...], intrinsic_dim: int, alpha: float, dtype: torch.dtype
) -> None:
    """d_M is the head width with several heads and the dimension of the sphere with one head."""
    q, k, v = qkv(batch=batch, dtype=dtype)
    default, explicit = Spherical(alpha), Spherical(alpha, intrinsic_dim=intrinsic_dim)
    for kernel in ("auto", "reference", "chunked"):
        default.kernel = explicit.kernel = kernel
        out = fractional_attention(q, k, v, alpha=alpha, manifold="sphere", kernel=kernel)
        assert torch.equal(out, default(q, k, v))
        assert torch.equal(out, explicit(q, k, v))
    assert torch.equal(attention_weights(q, k, alpha=alpha, manifold="sphere"), default.weights(q, k))
    other = Spherical(1.2, intrinsic_dim=15 - intrinsic_dim)
    assert not torch.allclose(Spherical(1.2).weights(q, k), other.weights(q, k), rtol=1e-4, atol=0)


@pytest.mark.parametrize("heads", [1, 3])
def test_multihead_on_the_sphere_equals_the_function(heads: int) -> None:
    layer = MultiheadAttention(12, heads, Spherical()).double()
    x = torch.randn(2, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    q, k, v = layer.heads(x)
    out = fractional_attention(q, k, v, manifold="sphere")
    assert torch.equal(layer(x), layer.out(out.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("scale", [1.0, 10.0, 100.0])
@pytest.mark.parametrize("alpha", [1.2, 2.0])
def test_bfloat16_error_is_bounded_for_every_token_scale(alpha: float, scale: float) -> None:
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


def test_torch_compile() -> None:
    q, k, v = qkv(9, 9, dtype=torch.float32)
    compiled = torch.compile(lambda q, k, v: fractional_attention(q, k, v, alpha=2.0), backend="aot_eager")
    assert_close(compiled(q, k, v), fractional_attention(q, k, v, alpha=2.0))
