"""Accuracy of the C kernel, compared with the reference formula in float64."""

from itertools import product

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Fractional, Spherical
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels.base import Radial

from helpers.attention_cases import RADIAL_ATTENTIONS
from helpers.attention_cpu import (
    GRADIENT_TOLERANCE,
    MASKS,
    MIN_SCALE,
    assert_accurate,
    needs_kernel,
    random_qkv,
    with_float64_reference,
)

# n, m, head width, value width: odd numbers, more than one block of keys and of queries
SIZES = [(5, 3, 1, 1), (65, 65, 8, 8), (50, 130, 33, 20), (30, 30, 64, 64), (200, 200, 32, 32), (7, 300, 4, 70)]


@needs_kernel
@pytest.mark.parametrize("mask_name", MASKS)
@pytest.mark.parametrize("case", RADIAL_ATTENTIONS)
def test_output_and_gradients_equal_the_float64_reference(case, mask_name) -> None:
    for n, m, d, d_v in SIZES:
        assert_accurate(with_float64_reference(RADIAL_ATTENTIONS[case], *random_qkv(n, m, d, d_v), mask_name))


@needs_kernel
@pytest.mark.parametrize("mask_name", ["none", "causal and padding", "general"])
@pytest.mark.parametrize("case", ["power law", "Gaussian"])
def test_keys_that_do_not_fit_into_the_cache(case, mask_name) -> None:
    # At this width a part of the keys is computed for several blocks of queries before the next part; see csrc/work.h.
    assert_accurate(with_float64_reference(RADIAL_ATTENTIONS[case], *random_qkv(450, 800, 256, 256), mask_name))


@needs_kernel
@pytest.mark.parametrize("case", RADIAL_ATTENTIONS)
def test_output_for_one_key_is_its_value(case) -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv(1, 1, 8, 8))
    out = RADIAL_ATTENTIONS[case](kernel="cpu")(q, k, v)
    torch.testing.assert_close(out, v)
    grads = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    for grad, want in zip(grads, (0.0, 0.0, 1.0), strict=True):
        torch.testing.assert_close(grad, torch.full_like(grad, want), rtol=1e-6, atol=1e-6)


@needs_kernel
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0])
def test_accuracy_does_not_depend_on_the_scale_of_the_tokens(scale, tied) -> None:
    for case, mask_name, d in product(("power law", "power law, vision"), MASKS, (8, 32, 64)):
        tokens = random_qkv(130, 130, d, d, scale)
        assert_accurate(with_float64_reference(RADIAL_ATTENTIONS[case], *tokens, mask_name, tied=tied))


@needs_kernel
def test_tokens_near_the_float32_maximum_give_no_nan() -> None:
    q, k, v = random_qkv(130, 130, 64, 64, scale=1e18)
    want = Fractional(1.2, 1.0, kernel="reference")(q.double(), k.double(), v.double())
    cpu, reference = (Fractional(1.2, 1.0, kernel=name)(q, k, v) for name in ("cpu", "reference"))
    assert (cpu - want).abs().max() < (reference - want).abs().max()


@needs_kernel
@pytest.mark.parametrize("kappa", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("d", [8, 33])
def test_gaussian_of_tokens_many_kappa_apart_is_the_nearest_value(d, kappa) -> None:
    q, k, v = random_qkv(60, 130, d, 8, scale=30.0)
    want = Fractional(2.0, kappa, kernel="reference")(q.double(), k.double(), v.double())
    torch.testing.assert_close(Fractional(2.0, kappa, kernel="cpu")(q, k, v).double(), want, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attention", "value"),
    [(Fractional(1.2, 1e-20), "1e-20"), (Spherical(2.0, 1e-6), "1e-06")],
    ids=["plane", "sphere"],
)
def test_a_kappa_below_the_range_of_the_kernel_uses_another_kernel(attention, value) -> None:
    q, k, v = random_qkv(5, 6, 8, 8)
    reason = KERNELS["cpu"].refusal(Call(attention, q, k, v, attention.mask_for(q, k, None), 0.0))
    assert f"got {value}" in (reason or "")
    exact = type(attention)(attention.alpha, attention.kappa, kernel="reference")
    torch.testing.assert_close(
        attention(q, k, v).double(), exact(q.double(), k.double(), v.double()), rtol=1e-4, atol=1e-4
    )


@needs_kernel
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("case", RADIAL_ATTENTIONS)
def test_clusters_of_tokens_are_accurate(case, scale) -> None:
    generator = torch.Generator().manual_seed(2)
    centers = torch.randn(2, 3, 4, 32, generator=generator)
    near = centers.repeat_interleave(25, dim=2) + 1e-2 * torch.randn(2, 3, 100, 32, generator=generator)
    near = near * scale
    v = torch.randn(2, 3, 100, 16, generator=generator)
    assert_accurate(with_float64_reference(RADIAL_ATTENTIONS[case], near, near.flip(-2), v))
    assert_accurate(with_float64_reference(RADIAL_ATTENTIONS[case], near, near, v, tied=True))


@needs_kernel
@pytest.mark.parametrize("d", [8, 32])
def test_distance_of_a_token_to_itself_is_0(d) -> None:
    q, _, v = random_qkv(150, 150, d, 8)
    shifted = q + 10.0
    # with such a small kappa only a key at distance 0 has a weight
    out = Fractional(1.2, 1e-6, kernel="cpu")(shifted, shifted, v)
    torch.testing.assert_close(out, v, rtol=1e-4, atol=1e-4)


@needs_kernel
@pytest.mark.parametrize("case", ["power law", "power law, vision", "Gaussian"])
def test_attention_does_not_depend_on_the_origin(case) -> None:
    q, k, v = random_qkv(150, 120, 32, 8)
    # Adding a large power of 2 rounds the tokens; the reference gets the rounded tokens, too.
    q, k = q + 64.0, k + 64.0
    assert_accurate(with_float64_reference(RADIAL_ATTENTIONS[case], q, k, v))


@needs_kernel
def test_antipodes_are_accurate_and_their_gradient_is_finite() -> None:
    q, _, v = random_qkv(40, 40, 16, 8)
    # closer to the antipode the unit vectors themselves lose their digits in float32
    nearly = -q + 1e-2 * torch.randn(q.shape, generator=torch.Generator().manual_seed(3))
    assert_accurate(with_float64_reference(RADIAL_ATTENTIONS["sphere"], q, nearly, v))
    leaf = q.clone().requires_grad_()
    (grad,) = torch.autograd.grad(Spherical(1.2, kernel="cpu")(leaf, -q, v).sum(), leaf)
    assert grad.isfinite().all()


@needs_kernel
def test_a_row_without_keys_has_output_0_and_gradient_0() -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv(60, 110, 8, 8))
    mask = torch.ones(60, 110, dtype=torch.bool)
    mask[13] = False
    out = Fractional(1.2, kernel="cpu")(q, k, v, mask)
    assert out[:, :, 13].eq(0).all()
    grads = torch.autograd.grad(out.square().sum() + out[:, :, 13].sum(), (q, k, v))
    assert grads[0][:, :, 13].eq(0).all()
    assert all(grad.isfinite().all() for grad in grads)


@needs_kernel
@pytest.mark.parametrize(
    ("profile", "manifold", "n", "d_v"),
    [
        ("power", "euclidean", 130, 16),
        ("power", "sphere", 130, 16),
        ("gaussian", "euclidean", 130, 16),
        ("gaussian", "sphere", 130, 16),
        ("student", "euclidean", 130, 16),
        ("power", "euclidean", 460, 512),
    ],
)
def test_gradients_of_kappa_and_exponent_equal_the_float64_reference(profile, manifold, n, d_v) -> None:
    d, sphere = 32, manifold == "sphere"
    q, k, v = random_qkv(n, n, d, d_v)
    kappa, exponent = torch.tensor([3.0, 20.0, 200.0]), torch.tensor([33.2, 10.0, 33.8])
    if profile != "power":
        kappa = torch.tensor([4.0, 6.0, 9.0]) / (6.0 if sphere else 1.0)

    def reference(kappa: Tensor, exponent: Tensor) -> Tensor:
        attention = Spherical(1.2) if sphere else Fractional(1.2)
        scaled = attention.distance(q.double(), k.double()) / kappa[:, None, None]
        if profile == "gaussian":
            logits = -scaled.square()
        else:
            logits = -exponent[:, None, None] * (scaled if profile == "power" else scaled.square()).log1p()
        return logits.softmax(dim=-1) @ v.double()

    upstream = torch.randn(v.shape, generator=torch.Generator().manual_seed(5))
    if d_v > 100:
        # In a random direction, the terms of so many values cancel and leave their rounding; in this one, they add up.
        change = reference(1.01 * kappa.double(), exponent.double()) - reference(kappa.double(), exponent.double())
        upstream = (change / change.std(dim=(-2, -1), keepdim=True)).float()

    exact = [x.double().requires_grad_() for x in (kappa, exponent)]
    assert torch.autograd.gradcheck(lambda *x: reference(*x)[0, :, 0, :2], exact)
    want = torch.autograd.grad(reference(*exact), exact, upstream.double(), allow_unused=True)
    leaves = [x.requires_grad_() for x in (kappa, exponent)]
    form = Radial(profile, sphere, *leaves)

    class Learned(Fractional):
        def radial(self, q: Tensor) -> Radial:
            return form

    got = torch.autograd.grad(Learned(kernel="cpu")(q, k, v), leaves, upstream, allow_unused=True)
    for name, a, b in zip(("kappa", "exponent"), got, want, strict=True):
        exact_grad = torch.zeros(3, dtype=torch.float64) if b is None else b
        error = (a.double() - exact_grad).abs().max() / exact_grad.abs().max().clamp_min(MIN_SCALE)
        assert error <= GRADIENT_TOLERANCE, f"{name} has an error of {error:.1e}"


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_float32(dtype) -> None:
    q, k, v = (x.to(dtype) for x in random_qkv(70, 70, 16, 8))
    out = Fractional(1.2, kernel="cpu")(q, k, v)
    assert out.dtype == dtype
    exact = Fractional(1.2, kernel="reference")(q.double(), k.double(), v.double())
    # the only error is one rounding to the dtype of the values
    torch.testing.assert_close(out, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-5)
