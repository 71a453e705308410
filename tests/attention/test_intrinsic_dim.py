"""The intrinsic dimension estimated from keys: the estimator, its running average in a layer, and its state."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.testing import assert_close

from fna_lightning.attention import (
    Fractional,
    MultiheadAttention,
    Spherical,
    StudentT,
    attention_weights,
    estimate_intrinsic_dim,
    fractional_attention,
)

from helpers.attention_cases import qkv, refusal


def sheet(dim: int, n: int = 400, width: int = 8, batch: tuple[int, ...] = (), seed: int = 0) -> Tensor:
    """Return points of a flat sheet of this dimension in ``width`` dimensions."""
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(*batch, n, dim, generator=generator) @ torch.randn(dim, width, generator=generator)


@pytest.mark.parametrize("dim", [1, 2, 3])
def test_dimension_of_a_sheet(dim: int) -> None:
    estimate = estimate_intrinsic_dim(sheet(dim, 1000))
    assert_close(estimate, torch.tensor(float(dim)), rtol=0.12, atol=0)
    assert estimate_intrinsic_dim(100.0 * sheet(dim, 1000)) == pytest.approx(estimate.item(), rel=1e-3)


def test_dimension_of_a_circle_is_1() -> None:
    angle = 6.283 * torch.rand(300, generator=torch.Generator().manual_seed(0))
    points = torch.stack([angle.cos(), angle.sin()], dim=-1)
    assert_close(estimate_intrinsic_dim(points), torch.tensor(1.0), rtol=0.1, atol=0)


def test_every_set_has_its_own_estimate_and_masked_points_do_not_count() -> None:
    points = torch.stack([sheet(1), sheet(2)])
    estimates = estimate_intrinsic_dim(points)
    assert_close(estimates, torch.stack([estimate_intrinsic_dim(x) for x in points]))
    noise = 10.0 * torch.randn(2, 100, 8, generator=torch.Generator().manual_seed(1))
    mask = torch.arange(500) < 400
    assert_close(estimate_intrinsic_dim(torch.cat([points, noise], dim=1), mask), estimates)


def test_few_equal_and_infinite_points() -> None:
    assert estimate_intrinsic_dim(torch.randn(2, 8)).isnan()
    assert estimate_intrinsic_dim(torch.ones(50, 8)).isnan()
    points = sheet(2)
    twice = torch.cat([points, points])
    assert_close(estimate_intrinsic_dim(twice), torch.tensor(2.0), rtol=0.35, atol=0)
    assert estimate_intrinsic_dim(torch.randn(3, 8)).isfinite()
    points[5] = torch.inf
    points[6] = torch.nan
    assert_close(estimate_intrinsic_dim(points), torch.tensor(2.0), rtol=0.12, atol=0)
    with pytest.raises(ValueError, match="neighbors must be at least 2, got 1"):
        estimate_intrinsic_dim(points, neighbors=1)


def test_a_layer_estimates_in_training_and_not_in_evaluation() -> None:
    attention = Fractional(1.2, intrinsic_dim="auto").for_heads(2)
    q, k = sheet(2, 32, batch=(4, 2)), torch.stack([sheet(1, 64, batch=(4,)), sheet(2, 64, batch=(4,))], dim=1)
    v = torch.randn(4, 2, 64, 8, generator=torch.Generator().manual_seed(0))
    attention.eval()
    attention(q, k, v)
    assert attention.dimension(q).tolist() == [8.0, 8.0]
    attention.train()
    for _ in range(3):
        attention(q, k, v)
    line, plane = attention.dimension(q).tolist()
    assert line == pytest.approx(1.0, abs=0.2)
    assert plane == pytest.approx(2.0, abs=0.4)
    attention.eval()
    attention(q, torch.randn(4, 2, 64, 8), v)
    assert attention.dimension(q).tolist() == [line, plane]
    assert_close(attention.learned_values(q)["intrinsic_dim"], torch.tensor([line, plane]))
    fixed = [Fractional(1.2, "text", dim)(q[:, [h]], k[:, [h]], v[:, [h]]) for h, dim in enumerate((line, plane))]
    assert_close(attention(q, k, v), torch.cat(fixed, dim=1))


def test_the_estimate_is_a_running_average_and_needs_no_gradient() -> None:
    attention = Fractional(1.2, intrinsic_dim="auto")
    attention.observe_keys(sheet(1, batch=(2, 2)), attention.mask_for(sheet(1), sheet(1), None))
    first = attention.running_dim.value.clone()
    later = sheet(3, batch=(2, 2))
    attention.observe_keys(later, attention.mask_for(later, later, None))
    second = attention.running_dim.value.clone()
    assert first < second < 0.85 * first + 0.15 * 3.2
    attention.observe_keys(later[..., :2, :], attention.mask_for(later, later, None))
    assert attention.running_dim.value.equal(second)
    assert not list(attention.parameters())


def test_padding_does_not_count() -> None:
    k = torch.cat([sheet(2, 16, batch=(2, 3)), 50.0 * torch.randn(2, 3, 16, 8)], dim=-2)
    padding = (torch.arange(32) < 16)[None, None, None, :].expand(2, 1, 1, 32)
    padded, short = (Fractional(intrinsic_dim="auto").for_heads(3) for _ in range(2))
    padded(k, k, k, padding)
    short(k[..., :16, :], k[..., :16, :], k[..., :16, :])
    assert_close(padded.running_dim.value, short.running_dim.value)


def test_the_state_is_saved_and_layers_do_not_share_it() -> None:
    attention = Fractional(intrinsic_dim="auto", learn=["kappa"])
    layers = [MultiheadAttention(16, 2, attention) for _ in range(2)]
    x = torch.randn(4, 30, 16, generator=torch.Generator().manual_seed(0))
    layers[0](x)
    assert layers[1].attention.running_dim.value.eq(0).all()
    state = layers[0].state_dict()
    assert state["attention.running_dim.value"].gt(0).all()
    layers[1].load_state_dict(state)
    assert torch.equal(layers[1].eval()(x), layers[0].eval()(x))


@pytest.mark.parametrize("kernel", ["reference", "chunked", "cpu"])
@pytest.mark.parametrize("make", [Fractional, Spherical, StudentT])
def test_kernels_agree(make, kernel: str) -> None:
    dtype = torch.float32 if kernel == "cpu" else torch.float64
    q, k, v = qkv(9, 20, 4, dtype=dtype)
    attention, reference = (make(intrinsic_dim="auto", kernel=name).for_heads(3) for name in (kernel, "reference"))
    if refusal(attention, kernel, q, k, v) is not None:
        pytest.skip(f"{kernel} does not run here")
    assert_close(attention(q, k, v), reference(q, k, v), rtol=0, atol=1e-5)
    assert attention.running_dim.value.gt(0).all()
    if kernel != "cpu":
        attention.eval()
        assert gradcheck(attention, qkv(3, 4, 4))


def test_chunked_differentiates_the_forward_pass_it_computed() -> None:
    """The estimate changes between forward and backward pass when a layer is called twice."""
    q, k, v = qkv(6, 30)
    grads = []
    for calls in (1, 2):
        attention = Fractional(intrinsic_dim="auto", kernel="chunked").for_heads(3)
        out = attention(q, k, v)
        if calls == 2:
            attention(q, sheet(1, 30, batch=(2, 3)).double(), v)
        grads.append(torch.autograd.grad(out.square().sum(), (q, k, v)))
    assert_close(grads[0], grads[1], rtol=0, atol=0)


def test_the_function_estimates_from_its_own_keys() -> None:
    k = torch.stack([sheet(1, 64), sheet(2, 64)])[None]
    weights = attention_weights(k, k, intrinsic_dim="auto", kappa=0.5)
    dims = Fractional(intrinsic_dim="auto").for_heads(2)
    dims(k, k, k)
    fixed = [
        attention_weights(k[:, h], k[:, h], intrinsic_dim=dims.dimension(k)[h].item(), kappa=0.5) for h in range(2)
    ]
    assert_close(weights, torch.stack(fixed, dim=1))
    for _ in range(2):
        assert_close(fractional_attention(k, k, k, intrinsic_dim="auto", kappa=0.5), weights @ k)
    assert_close(fractional_attention(k[0, 1], k[0, 1], k[0, 1], intrinsic_dim="auto", kappa=0.5), (weights @ k)[0, 1])


def test_another_word_is_refused() -> None:
    with pytest.raises(ValueError, match=r"positive number, None \(the head width\) or 'auto'.*got 'full'"):
        Fractional(intrinsic_dim="full")
