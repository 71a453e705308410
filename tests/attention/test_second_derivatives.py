"""Second derivatives in float64 against finite differences: masks, causality, tied tokens, and forward over reverse."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, StudentT

ATTENTIONS: dict[str, Callable[..., Attention]] = {
    "power law": lambda kernel: Fractional(1.2, kappa=0.8, kernel=kernel),
    "Gaussian": lambda kernel: Fractional(2.0, kappa=0.9, kernel=kernel),
    "sphere": lambda kernel: Spherical(1.2, kappa=0.7, kernel=kernel),
    "Gaussian on the sphere": lambda kernel: Spherical(2.0, kappa=0.8, kernel=kernel),
    "Student": lambda kernel: StudentT(2.0, kappa=0.7, kernel=kernel),
    "dot product": lambda kernel: DotProduct(kernel=kernel),
}
CASES = [
    *((name, kernel) for name in ATTENTIONS for kernel in ("chunked", "reference")),
    ("Gaussian", "sdpa"),
    ("dot product", "sdpa"),
]
MASKS = ("none", "boolean", "causal")
# Functions of r^2 are smooth where q = k.
SMOOTH = ("Gaussian", "Gaussian on the sphere", "Student")


def tokens(*lengths: int, d: int = 2, seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(1, 1, n, d, generator=generator, dtype=torch.float64).requires_grad_() for n in lengths]


def masked(attention: Attention, mask: str, n: int, m: int) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    allowed = None
    if mask == "boolean":
        allowed = torch.ones(n, m, dtype=torch.bool)
        allowed[0, 1] = False
        allowed[1] = False
    return lambda q, k, v: attention(q, k, v, allowed, is_causal=mask == "causal")


def assert_derivatives(function: Callable[..., Tensor], inputs: list[Tensor]) -> None:
    # The fast mode compares random projections of the Jacobians.
    assert gradcheck(function, inputs, check_forward_ad=True, check_batched_grad=True, fast_mode=True)
    assert gradgradcheck(function, inputs, check_fwd_over_rev=True, fast_mode=True)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("name", "kernel"), CASES)
def test_derivatives(name, kernel, mask) -> None:
    assert_derivatives(masked(ATTENTIONS[name](kernel), mask, 3, 3), tokens(3, 3, 3))


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("name", "kernel"), [case for case in CASES if case[1] != "reference"])
def test_self_attention(name, kernel, mask) -> None:
    """Every token is tied with itself: its distance is 0 for all tokens, and so are all derivatives of it."""
    function = masked(ATTENTIONS[name](kernel), mask, 3, 3)
    assert_derivatives(lambda x, v: function(x, x, v), tokens(3, 3))


@pytest.mark.parametrize("kernel", ["chunked", "reference", "sdpa"])
@pytest.mark.parametrize("name", SMOOTH)
def test_ties_of_smooth_attentions(name, kernel) -> None:
    """Keys equal to queries, and equal queries: the second derivative of r^2 is 2 there, not 0."""
    if kernel == "sdpa" and name != "Gaussian":
        pytest.skip("sdpa computes the Gaussian on R^d only")
    q, k, v = tokens(3, 3, 3)
    with torch.no_grad():
        k[..., :2, :] = q[..., :2, :]
        q[..., 2, :] = q[..., 1, :]
    assert_derivatives(masked(ATTENTIONS[name](kernel), "none", 3, 3), [q, k, v])


@pytest.mark.parametrize("kernel", ["chunked", "reference"])
@pytest.mark.parametrize("name", ["power law", "sphere"])
def test_ties_of_the_power_law(name, kernel) -> None:
    """The power law has a kink where q = k. The gradient of its distance is 0, and so are all further derivatives."""
    q, k, v = tokens(2, 3, 3)
    with torch.no_grad():
        k[..., 0, :] = q[..., 0, :]
    function = masked(ATTENTIONS[name](kernel), "none", 2, 3)
    # A central difference across a symmetric kink is 0, too.
    assert gradcheck(function, [q, k, v], check_forward_ad=True)

    def distances_from_others(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Return the output with the tied pair as a constant: the same derivatives, by the formula."""
        points = (q, k) if name == "power law" else tuple(x / x.norm(dim=-1, keepdim=True) for x in (q, k))
        gaps = points[0][..., :, None, :] - points[1][..., None, :, :]
        tied = (q[..., :, None, :] == k[..., None, :, :]).all(dim=-1)
        r = gaps.masked_fill(tied[..., None], 1.0).square().sum(dim=-1).sqrt()
        if name == "sphere":
            r = 2.0 * torch.asin(0.5 * r.masked_fill(tied, 1.0))
        r = r.masked_fill(tied, 0.0)
        kappa, exponent = (0.8, 2 + 1.2) if name == "power law" else (0.7, 1 + 1.2)
        return (1.0 + r / kappa).log().mul(-exponent).softmax(dim=-1) @ v

    results = []
    for compute in (function, distances_from_others):
        first = torch.autograd.grad(compute(q, k, v).sin().sum(), (q, k, v), create_graph=True)
        second = torch.autograd.grad(sum(x.square().sum() for x in first), (q, k, v))
        results.append((*first, *second))
    for got, want in zip(*results, strict=True):
        assert got.isfinite().all()
        torch.testing.assert_close(got, want)


def test_second_derivative_of_squared_distances_at_a_tie() -> None:
    """One key at the query and one at distance 1: the Hessian of the log-ratio of the weights is -2 / kappa^2."""
    k = torch.tensor([[[[0.0, 0.0], [1.0, 0.0]]]], dtype=torch.float64)
    v = torch.eye(2, dtype=torch.float64)[None, None]

    def log_weight(q: Tensor) -> Tensor:
        weights = Fractional(2.0, kappa=0.5, kernel="chunked")(q[None, None, None], k, v)
        # log w_0 - log w_1 = (|q - k_1|^2 - |q|^2) / kappa^2; without the first term it is -|q|^2 / kappa^2.
        ratio = (weights[..., 0] / weights[..., 1]).log().sum()
        return ratio - (q - k[0, 0, 1]).square().sum() / 0.25

    want = -2.0 / 0.25 * torch.eye(2, dtype=torch.float64)
    torch.testing.assert_close(torch.func.hessian(log_weight)(torch.zeros(2, dtype=torch.float64)), want)
