"""NaN and infinity: every kernel returns NaN for exactly the queries for which the reference formula does."""

import math

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Attention, Fractional

from helpers.attention_cases import NAMED_ATTENTIONS, RADIAL_ATTENTIONS, refusal

BAD = pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf], ids=str)
# More than one block of queries and of keys. The C kernel treats the two widths differently. INDEX is the position of
# the token that is not finite.
N, INDEX = 130, 101
WIDTHS = (8, 40)


def tokens(d: int) -> list[Tensor]:
    q, k, v = torch.randn(3, 2, 2, N, d, generator=torch.Generator().manual_seed(0)).unbind()
    return [q.clone(), k.clone(), v.clone()]


def masks() -> dict[str, tuple[Tensor | None, bool]]:
    """Return mask and is_causal by name; each allows the key at INDEX for a part of the queries or for all."""
    padding = torch.ones(2, 1, 1, N, dtype=torch.bool)
    padding[0, ..., INDEX] = False
    general = torch.rand(2, 2, N, N, generator=torch.Generator().manual_seed(1)) < 0.5
    general[:, :, 7] = False
    only = torch.zeros(N, N, dtype=torch.bool)
    only[:, INDEX] = True
    only[: N // 2, 3] = True
    return {
        "none": (None, False),
        "causal": (None, True),
        "padding": (padding, False),
        "general": (general, False),
        "one key": (only, False),
    }


def assert_same(attention: Attention, reference: Attention, q: Tensor, k: Tensor, v: Tensor, name: str) -> None:
    mask, causal = masks()[name]
    want = reference(q, k, v, mask, is_causal=causal)
    got = attention(q, k, v, mask, is_causal=causal)
    assert torch.equal(got.isnan().any(-1), want.isnan().any(-1)), name
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4, equal_nan=True, msg=name)


@BAD
@pytest.mark.parametrize("kernel", ["cpu", "sdpa", "chunked"])
@pytest.mark.parametrize("case", NAMED_ATTENTIONS)
def test_query(case, kernel, bad) -> None:
    for d in WIDTHS:
        q, k, v = tokens(d)
        q[1, 0, INDEX, 2] = bad
        if refusal(NAMED_ATTENTIONS[case](kernel=kernel), kernel, q, k, v) is not None:
            pytest.skip(f"{kernel} does not compute this")
        for name in masks():
            assert_same(
                NAMED_ATTENTIONS[case](kernel=kernel), NAMED_ATTENTIONS[case](kernel="reference"), q, k, v, name
            )


@BAD
@pytest.mark.parametrize("kernel", ["cpu", "chunked"])
@pytest.mark.parametrize("case", RADIAL_ATTENTIONS)
def test_key(case, kernel, bad) -> None:
    for d in WIDTHS:
        q, k, v = tokens(d)
        k[:, 1, INDEX, 2] = bad
        if refusal(NAMED_ATTENTIONS[case](kernel=kernel), kernel, q, k, v) is not None:
            pytest.skip(f"{kernel} does not run here")
        for name in masks():
            assert_same(
                NAMED_ATTENTIONS[case](kernel=kernel), NAMED_ATTENTIONS[case](kernel="reference"), q, k, v, name
            )


@pytest.mark.parametrize("case", NAMED_ATTENTIONS)
def test_nan_key_with_sdpa(case) -> None:
    q, k, v = tokens(8)
    k[:, 1, INDEX, 2] = math.nan
    if refusal(NAMED_ATTENTIONS[case](kernel="sdpa"), "sdpa", q, k, v) is not None:
        pytest.skip("sdpa does not compute this")
    for name in ("none", "causal"):
        assert_same(NAMED_ATTENTIONS[case](kernel="sdpa"), NAMED_ATTENTIONS[case](kernel="reference"), q, k, v, name)


@pytest.mark.parametrize("kernel", ["cpu", "chunked", "sdpa"])
@pytest.mark.parametrize("case", NAMED_ATTENTIONS)
def test_nan_value(case, kernel) -> None:
    q, k, v = tokens(8)
    v[:, 1, INDEX, 2] = math.nan
    attention = NAMED_ATTENTIONS[case](kernel=kernel)
    if refusal(attention, kernel, q, k, v) is not None:
        pytest.skip(f"{kernel} does not compute this")
    nan = attention(q, k, v).isnan()
    assert nan[:, 1, :, 2].all()
    assert nan.sum() == nan[:, 1, :, 2].numel()


@BAD
@pytest.mark.parametrize("case", RADIAL_ATTENTIONS)
def test_masked_key_does_not_change_gradients(case, bad) -> None:
    """A masked key that is not finite changes no gradient of the C kernel."""
    q, k, v = tokens(40)
    if refusal(NAMED_ATTENTIONS[case](kernel="cpu"), "cpu", q, k, v) is not None:
        pytest.skip("no C kernel here")
    mask = torch.ones(N, N, dtype=torch.bool)
    mask[:, INDEX] = False
    results = []
    for value in (bad, 0.5):
        k[:, 1, INDEX, 2] = value
        leaves = [x.clone().requires_grad_() for x in (q, k, v)]
        out = NAMED_ATTENTIONS[case](kernel="cpu")(*leaves, mask)
        results.append([out, *torch.autograd.grad(out.square().sum(), leaves)])
    for got, want in zip(*results, strict=True):
        keep = [index for index in range(N) if index != INDEX]
        torch.testing.assert_close(got[:, :, keep], want[:, :, keep], rtol=1e-4, atol=1e-5)


def test_nan_query_has_nan_gradient() -> None:
    q, k, v = tokens(8)
    q[0, 0, INDEX, 2] = math.nan
    leaves = [x.requires_grad_() for x in (q, k, v)]
    grads = torch.autograd.grad(Fractional(1.2)(*leaves).sum(), leaves)
    assert all(grad[0, 0].isnan().any() for grad in grads)
    assert all(grad[1].isfinite().all() for grad in grads)
