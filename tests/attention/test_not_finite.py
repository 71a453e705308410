"""NaN and infinity: every kernel says NaN for the queries for which the written-out formula does, and never 0."""

import math

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Attention, Fractional

from helpers.attention_cases import KINDS, refusal

RADIAL = list(KINDS)[:5]
BAD = pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
# more than one block of queries and of keys, with widths the C kernel treats differently
N, PLACE = 130, 101
WIDTHS = (8, 40)


def tokens(d: int) -> list[Tensor]:
    q, k, v = torch.randn(3, 2, 2, N, d, generator=torch.Generator().manual_seed(0)).unbind()
    return [q.clone(), k.clone(), v.clone()]


def restrictions() -> dict[str, tuple[Tensor | None, bool]]:
    """Return masks and whether they are causal; each of them lets some query see the place, and some not."""
    padding = torch.ones(2, 1, 1, N, dtype=torch.bool)
    padding[0, ..., PLACE] = False
    general = torch.rand(2, 2, N, N, generator=torch.Generator().manual_seed(1)) < 0.5
    general[:, :, 7] = False
    only = torch.zeros(N, N, dtype=torch.bool)
    only[:, PLACE] = True
    only[: N // 2, 3] = True
    return {
        "nothing": (None, False),
        "causal": (None, True),
        "padding": (padding, False),
        "general": (general, False),
        "the place alone": (only, False),
    }


def assert_same(attention: Attention, reference: Attention, q: Tensor, k: Tensor, v: Tensor, name: str) -> None:
    mask, causal = restrictions()[name]
    want = reference(q, k, v, mask, is_causal=causal)
    got = attention(q, k, v, mask, is_causal=causal)
    assert torch.equal(got.isnan().any(-1), want.isnan().any(-1)), name
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True, msg=name)


@BAD
@pytest.mark.parametrize("kernel", ["cpu", "sdpa", "chunked"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_query(kind, kernel, bad) -> None:
    for d in WIDTHS:
        q, k, v = tokens(d)
        q[1, 0, PLACE, 2] = bad
        if refusal(KINDS[kind](kernel), kernel, q, k, v) is not None:
            pytest.skip(f"{kernel} does not compute this")
        for name in restrictions():
            assert_same(KINDS[kind](kernel), KINDS[kind]("reference"), q, k, v, name)


@BAD
@pytest.mark.parametrize("kernel", ["cpu", "chunked"])
@pytest.mark.parametrize("kind", RADIAL)
def test_a_key(kind, kernel, bad) -> None:
    for d in WIDTHS:
        q, k, v = tokens(d)
        k[:, 1, PLACE, 2] = bad
        if refusal(KINDS[kind](kernel), kernel, q, k, v) is not None:
            pytest.skip(f"{kernel} does not run here")
        for name in restrictions():
            assert_same(KINDS[kind](kernel), KINDS[kind]("reference"), q, k, v, name)


@pytest.mark.parametrize("kind", KINDS)
def test_a_key_that_is_nan_with_pytorchs_kernel(kind) -> None:
    q, k, v = tokens(8)
    k[:, 1, PLACE, 2] = math.nan
    if refusal(KINDS[kind]("sdpa"), "sdpa", q, k, v) is not None:
        pytest.skip("sdpa does not compute this")
    for name in ("nothing", "causal"):
        assert_same(KINDS[kind]("sdpa"), KINDS[kind]("reference"), q, k, v, name)


@pytest.mark.parametrize("kernel", ["cpu", "chunked", "sdpa"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_value_in_sight(kind, kernel) -> None:
    q, k, v = tokens(8)
    v[:, 1, PLACE, 2] = math.nan
    attention = KINDS[kind](kernel)
    if refusal(attention, kernel, q, k, v) is not None:
        pytest.skip(f"{kernel} does not compute this")
    nan = attention(q, k, v).isnan()
    assert nan[:, 1, :, 2].all()
    assert nan.sum() == nan[:, 1, :, 2].numel()


@BAD
@pytest.mark.parametrize("kind", RADIAL)
def test_gradients_of_what_does_not_see_it_are_untouched(kind, bad) -> None:
    """A hidden key that is not finite changes no gradient of the C kernel."""
    q, k, v = tokens(40)
    if refusal(KINDS[kind]("cpu"), "cpu", q, k, v) is not None:
        pytest.skip("no C kernel here")
    mask = torch.ones(N, N, dtype=torch.bool)
    mask[:, PLACE] = False
    results = []
    for value in (bad, 0.5):
        k[:, 1, PLACE, 2] = value
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = KINDS[kind]("cpu")(*leaves, mask)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for got, want in zip(*results, strict=True):
        keep = [place for place in range(N) if place != PLACE]
        torch.testing.assert_close(got[:, :, keep], want[:, :, keep], rtol=1e-4, atol=1e-5)


def test_a_query_that_is_nan_gives_a_gradient_that_is_nan() -> None:
    q, k, v = tokens(8)
    q[0, 0, PLACE, 2] = math.nan
    leaves = [x.requires_grad_() for x in (q, k, v)]
    grads = torch.autograd.grad(Fractional(1.2)(*leaves).sum(), leaves)
    assert all(grad[0, 0].isnan().any() for grad in grads)
    assert all(grad[1].isfinite().all() for grad in grads)
