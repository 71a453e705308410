"""The log-sum-exp of the rows, which merges outputs over disjoint sets of keys."""

import pytest
import torch
from torch.testing import assert_close

from fna_lightning.attention import Attention, Fractional
from fna_lightning.attention.kernels import Call, chunked
from fna_lightning.attention.kernels.chunked import log_sum_exp

from helpers.attention_cases import NAMED_ATTENTIONS, qkv


def call_of(attention: Attention, q, k, v, mask=None, **options) -> Call:
    return Call(attention, q, k, v, attention.mask_for(q, k, mask, **options), 0.0)


@pytest.mark.parametrize("case", [name for name in NAMED_ATTENTIONS if name != "cosine"])
def test_outputs_over_parts_of_the_keys_merge(case, monkeypatch) -> None:
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 40)
    attention = NAMED_ATTENTIONS[case]()
    q, k, v = qkv(5, 7)
    bias = torch.randn(5, 7, dtype=q.dtype, generator=torch.Generator().manual_seed(1))
    parts = []
    for keys in (slice(0, 3), slice(3, 7)):
        part = (q, k[..., keys, :], v[..., keys, :])
        parts.append((attention(*part, bias=bias[:, keys]), log_sum_exp(call_of(attention, *part, bias=bias[:, keys]))))
    total = torch.logaddexp(parts[0][1], parts[1][1])
    merged = sum((lse - total).exp()[..., None] * out for out, lse in parts)
    assert_close(merged, attention(q, k, v, bias=bias))
    assert_close(log_sum_exp(call_of(attention, q, k, v, bias=bias)), total)


def test_rows_without_keys_are_minus_infinity_with_gradient_zero() -> None:
    q, k, v = qkv(4, 4)
    mask = torch.ones(4, 4, dtype=torch.bool)
    mask[2] = False
    lse = log_sum_exp(call_of(Fractional(1.2), q, k, v, mask))
    assert torch.equal(lse.isneginf(), (torch.arange(4) == 2).expand(2, 3, 4))
    grads = torch.autograd.grad(lse.nan_to_num(neginf=0.0).sum(), (q, k))
    assert grads[0][..., 2, :].eq(0).all()
    assert all(grad.isfinite().all() for grad in grads)


@pytest.mark.parametrize("alpha", [1.2, 2.0])
def test_derivatives(alpha) -> None:
    q, k, v = (x[:1, :1].detach().requires_grad_() for x in qkv(3, 4, 2))
    bias = torch.zeros(3, 4, dtype=q.dtype, requires_grad=True)

    def lse(q, k, bias):
        return log_sum_exp(call_of(Fractional(alpha), q, k, v, bias=bias, is_causal=True))

    assert torch.autograd.gradcheck(lse, (q, k, bias))
    assert torch.autograd.gradgradcheck(lse, (q, k, bias))


def test_density_power_is_refused() -> None:
    q, k, v = qkv(4, 4)
    with pytest.raises(ValueError, match=r"density_power=0\.5; set it to 0"):
        log_sum_exp(call_of(Fractional(1.2, density_power=0.5), q, k, v))
