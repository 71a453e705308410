"""The Triton kernel, compared with the formula in float64, on the GPU or in Triton's interpreter.

``test_triton_interpreter.py`` runs the tests that are not marked ``interpreter`` in a process of its own.
"""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fna_lightning import fractional_attention
from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, StudentT
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels.radial_checks import PROFILES

from helpers.attention_triton import (
    DEVICE,
    INTERPRETED,
    TOLERANCE,
    Case,
    assert_accurate,
    errors,
    kept,
    needs_triton,
    results,
)

pytestmark = needs_triton
slow = pytest.mark.interpreter

HALF = {"bfloat16": torch.bfloat16, "float16": torch.float16}
# The second element says whether the case is among the quick ones.
CASES = {
    "plain": (Case(d=8, d_v=8), True),
    "width 33, values 20, more keys": (Case(n=65, m=130, d=33, d_v=20), True),
    "width 64": (Case(n=130, m=130, d=64, d_v=64, batches=1), True),
    "width 128": (Case(d=128, d_v=128, batches=1), True),
    "one query": (Case(n=1, mask="padding"), False),
    "Gaussian": (Case("gaussian"), True),
    "Student": (Case("student"), True),
    "sphere": (Case("sphere"), True),
    "Gaussian on the sphere": (Case("gaussian sphere"), False),
    "sphere, width 64": (Case("sphere", d=64, d_v=64), False),
    "tied": (Case(tied=True), False),
    "tied, exclude self": (Case(tied=True, exclude_self=True, d=8), True),
    "tied on the sphere, exclude self": (Case("sphere", tied=True, exclude_self=True), False),
    "padding": (Case(mask="padding", n=130, m=130), False),
    "length 0": (Case(mask="length 0"), True),
    "holes": (Case(mask="holes"), False),
    "holes by head, grouped": (Case(mask="holes by head", heads=4, groups=2, batches=1), True),
    "general mask": (Case(mask="general"), True),
    "same for all heads": (Case(mask="same for all heads"), False),
    "mask by query": (Case(mask="by query"), False),
    "causal": (Case(causal=True, n=130, m=130), False),
    "causal, padding": (Case(causal=True, mask="padding"), True),
    "causal, exclude self, general mask": (Case(causal=True, exclude_self=True, mask="general"), False),
    "causal with offset": (Case(causal=True, n=60, m=130, offset=70), True),
    "causal with a large offset": (Case(causal=True, offset=2**62), False),
    "causal with a negative offset": (Case(causal=True, offset=-9), False),
    "exclude self": (Case(exclude_self=True, n=200, m=200), False),
    "exclude self with offset": (Case(exclude_self=True, n=50, m=130, offset=80), True),
    "exclude self, padding": (Case(exclude_self=True, mask="padding"), False),
    "grouped heads": (Case(heads=4, groups=2, batches=1), False),
    "one key head": (Case(heads=3, groups=1, batches=1, mask="padding"), False),
    "grouped heads on the sphere": (Case("sphere", heads=4, groups=2, batches=1), False),
    "bias": (Case(bias=(2, 2, 70, 70), mask="padding"), True),
    "bias for all batches": (Case(bias=(1, 2, 70, 70)), False),
    "bias for all batches and heads, causal": (Case(bias=(70, 70), causal=True), False),
    "bias by key": (Case(bias=(2, 1, 1, 70), exclude_self=True), True),
    "bias, Gaussian, grouped, general mask": (
        Case("gaussian", bias=(4, 70, 70), mask="general", heads=4, groups=2, batches=1),
        False,
    ),
    "dropout": (Case(dropout=0.3), True),
    "dropout with everything": (
        Case(dropout=0.1, bias=(1, 2, 70, 70), causal=True, mask="padding", heads=2, groups=1),
        True,
    ),
}


@pytest.mark.parametrize(
    "case", [pytest.param(case, id=name, marks=[] if quick else slow) for name, (case, quick) in CASES.items()]
)
def test_output_and_gradients_equal_float64(case) -> None:
    assert_accurate(case)


@slow
def test_a_bias_that_is_constant_in_each_row_has_gradient_0() -> None:
    for shape in ((2, 70, 1), (1,)):
        case = Case(bias=shape)
        got, want = results(case), results(replace(case, bias=None))
        assert got["gradient of bias"].shape == shape
        # relative to the sum of the absolute values of the terms
        terms = results(replace(case, bias=(2, 2, 70, 70)))["gradient of bias"].abs()
        assert (got["gradient of bias"].abs() <= 2e-6 * terms.sum_to_size(shape)).all()
        torch.testing.assert_close(got["output"], want["output"], rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("dtype", HALF.values(), ids=HALF)
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(Case(d=64, d_v=64, batches=1, mask="padding"), id="power law"),
        pytest.param(Case("sphere"), id="sphere"),
        pytest.param(Case("gaussian", d=32, d_v=32), id="Gaussian", marks=slow),
        pytest.param(Case("student", d=32, d_v=32), id="Student", marks=slow),
        pytest.param(Case(d=8, d_v=8, tied=True, exclude_self=True), id="tied", marks=slow),
        pytest.param(Case(d=33, d_v=20, heads=4, mask="padding"), id="width 33, grouped", marks=slow),
        pytest.param(Case(d=128, d_v=128, batches=1), id="width 128", marks=slow),
        pytest.param(Case(dropout=0.2, bias=(2, 1, 70, 70), mask="general"), id="dropout, bias", marks=slow),
    ],
)
def test_half_precision(case, dtype) -> None:
    assert_accurate(replace(case, dtype=dtype))


@slow
def test_bfloat16_error_of_causal_rows_is_that_of_the_rounded_output(monkeypatch) -> None:
    """A row of few keys amplifies the error of delta, the product of the rounded output with its gradient."""
    from fna_lightning.attention.kernels.triton import op

    case = Case(d=33, d_v=20, heads=4, causal=True, dtype=torch.bfloat16)
    error = errors(case)
    # 1.03e-2 in the interpreter
    assert error.pop("gradient of q") <= 2e-2
    assert max(error.values()) <= TOLERANCE[torch.bfloat16]
    q, k, v, _, kappa, exponent = (None if x is None else x.float().to(DEVICE) for x in case.tensors())
    out, _ = op.forward(q, k, v, None, None, kappa, exponent, None, 0, False, True, False, 0, 0.0)
    row_products = op.row_products
    monkeypatch.setattr(op, "row_products", lambda grad, _, call: row_products(grad, out, call))
    assert_accurate(case)


@pytest.mark.parametrize("d", [8, 33, 64, 128])
@pytest.mark.parametrize("dtype", [torch.float32, *HALF.values()], ids=["float32", *HALF])
@pytest.mark.parametrize("attention", [Fractional(1.2, 1e-6), Spherical(1.2, 1e-6)], ids=["plane", "sphere"])
def test_distance_of_a_token_to_itself_is_exactly_0(attention, dtype, d) -> None:
    generator = torch.Generator().manual_seed(0)
    tokens = (torch.randn(1, 1, 70, d, generator=generator) + 10.0 * (not isinstance(attention, Spherical))).to(dtype)
    v = torch.randn(1, 1, 70, 8, generator=generator).to(dtype)
    attention.kernel = "triton"
    # with such a small kappa only a key at distance 0 has a weight
    out = attention(tokens.to(DEVICE), tokens.to(DEVICE), v.to(DEVICE)).cpu()
    torch.testing.assert_close(out, v, rtol=0.0, atol=0.0 if dtype is not torch.float32 else 1e-6)


@pytest.mark.parametrize("kernel_mask", ["length 0", pytest.param("general", marks=slow)])
def test_rows_without_keys_are_0_and_so_are_their_gradients(kernel_mask) -> None:
    case = Case(mask=kernel_mask)
    empty = ~case.mask_tensor().any(dim=-1).expand(case.batches, case.heads, case.n)
    assert empty.any()
    got = results(case)
    assert got["output"][empty].eq(0.0).all()
    assert got["gradient of q"][empty].eq(0.0).all()
    unused = ~case.mask_tensor().expand(2, 2, 70, 70).any(dim=2)
    assert got["gradient of k"][unused].eq(0.0).all()
    assert got["gradient of v"][unused].eq(0.0).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
def test_results_are_bitwise_repeatable(dtype) -> None:
    case = Case(dtype=dtype, dropout=0.1, bias=(2, 1, 1, 70), causal=True, heads=2, groups=1)
    first, second = results(case), results(case)
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_dropped_weights_are_those_of_the_hash_for_any_block_size(monkeypatch) -> None:
    from fna_lightning.attention.kernels.triton import launch
    from fna_lightning.attention.kernels.triton.blocks import Blocks

    n, m, p, seed = 70, 96, 0.25, 987654321987654321
    q, k = torch.zeros(1, 2, n, 8, device=DEVICE), torch.zeros(1, 2, m, 8, device=DEVICE)
    # with equal tokens and the identity matrix as values, the output is the matrix of dropped weights
    v = torch.eye(m, device=DEVICE).expand(1, 2, m, m).contiguous()
    ones = torch.ones(2, device=DEVICE)
    for blocks in (None, Blocks(32, 16, 4, 1)):
        if blocks is not None:
            monkeypatch.setattr(launch, "block_sizes", lambda *_, blocks=blocks: blocks)
        out, _ = torch.ops.fna_lightning.radial_attention(
            q, k, v, None, None, ones, ones, torch.tensor(seed, device=DEVICE), 0, False, False, False, 0, p, "triton"
        )
        want = kept(seed, out.shape, p)
        assert torch.equal(out.cpu() > 0, want)
        torch.testing.assert_close(out.cpu() * m, want / (1.0 - p), rtol=1e-5, atol=0.0)
    assert abs(want.double().mean() - 0.75) < 5.0 * (p * (1.0 - p) / want.numel()) ** 0.5
    rows = (want[0, 0].double() - 0.75) @ (want[0, 0].double() - 0.75).T / (m * p * (1.0 - p))
    assert (rows - torch.eye(n)).abs().max() < 6.0 * m**-0.5


@slow
def test_results_do_not_depend_on_the_block_sizes(monkeypatch) -> None:
    from fna_lightning.attention.kernels.triton import launch
    from fna_lightning.attention.kernels.triton.blocks import Blocks

    for options in ({"causal": True}, {"exclude_self": True}, {"mask": "padding", "dropout": 0.2, "bias": (2, 1, 70)}):
        for blocks in (Blocks(32, 16, 4, 1), Blocks(16, 64, 4, 1)):
            monkeypatch.setattr(launch, "block_sizes", lambda *_, blocks=blocks: blocks)
            assert_accurate(Case(batches=1 if "mask" not in options else 2, **options))


@pytest.mark.parametrize("profile", ["power", pytest.param("sphere", marks=slow)])
def test_opcheck(profile) -> None:
    case = Case(profile, n=5, m=6, mask="padding", bias=(2, 1, 1, 6))
    q, k, v, bias, kappa, exponent = (x.to(DEVICE).requires_grad_() for x in case.tensors())
    arguments = (q, k, v, case.mask_tensor().to(DEVICE), bias, kappa, exponent, torch.tensor(3, device=DEVICE))
    settings = (PROFILES[case.formula], case.sphere, False, False, 0, 0.1, "triton")
    torch.library.opcheck(torch.ops.fna_lightning.radial_attention.default, (*arguments, *settings))


def test_public_function_with_any_strides_and_grouped_heads() -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(2, 33, heads, 16, generator=generator).to(DEVICE) for heads in (4, 2, 2))
    want = fractional_attention(*(x.transpose(1, 2).double() for x in (q, k, v)), enable_gqa=True, kernel="reference")
    split = [x.transpose(1, 2) for x in (q, k, v)]
    columns = [x.transpose(1, 2).mT.contiguous().mT for x in (q, k, v)]
    for tensors in (split, columns):
        out = fractional_attention(*tensors, enable_gqa=True, kernel="triton")
        torch.testing.assert_close(out.double(), want, rtol=2e-6, atol=2e-6)
    # the heads of a token-major call can be merged without a copy
    assert fractional_attention(*split, enable_gqa=True, kernel="triton").transpose(1, 2).is_contiguous()
    for tensors in ([x[:, 0] for x in split], [x[0, 0] for x in split]):
        out = fractional_attention(*tensors, kernel="triton")
        want = fractional_attention(*(x.double() for x in tensors), kernel="reference")
        torch.testing.assert_close(out.double(), want, rtol=2e-6, atol=2e-6)


@pytest.mark.parametrize("attention", [Spherical, pytest.param(Fractional, marks=slow)])
def test_learned_values_and_half_precision_of_a_module(attention) -> None:
    generator = torch.Generator().manual_seed(0)
    q, k, v = (torch.randn(1, 2, 40, 16, generator=generator).bfloat16().to(DEVICE) for _ in range(3))
    grads = []
    for kernel in ("triton", "reference"):
        module = attention(1.2, 0.5, learn=["alpha", "kappa"], kernel=kernel).for_heads(2).to(DEVICE)
        leaves = [x.clone() if kernel == "triton" else x.double() for x in (q, k, v)]
        out = module(*(x.requires_grad_() for x in leaves))
        grads.append([out, *torch.autograd.grad(out.sum(), [*leaves, *module.parameters()])])
    for got, want in zip(*grads, strict=True):
        assert (got.double() - want).abs().max() <= 1e-2 * want.abs().max().clamp_min(1e-3)


def test_a_refusal_names_its_reason() -> None:
    q, k, v = torch.randn(3, 1, 2, 4, 8, device=DEVICE).unbind()

    def refusal(attention: Attention, *tensors: Tensor) -> str:
        attention.kernel = "triton"
        return KERNELS["triton"].refusal(Call(attention, *tensors, attention.mask_for(*tensors[:2], None), 0.0)) or ""

    wide = torch.randn(1, 2, 4, 129, device=DEVICE)
    assert refusal(Fractional(1.2), q, k, v) == ""
    assert "up to a width of 128, got 129" in refusal(Fractional(1.2), wide, wide, v)
    assert "up to a width of 128, got 129" in refusal(Fractional(1.2), q, k, wide)
    assert "got torch.float64" in refusal(Fractional(1.2), q.double(), k.double(), v.double())
    assert "density_power" in refusal(Fractional(1.2, density_power=0.5), q, k, v)
    assert "DotProduct" in refusal(DotProduct(), q, k, v)
    assert refusal(StudentT(1.0), q, k, v) == ""
    if INTERPRETED:
        auto = Fractional(1.2)
        assert "must be named" in (KERNELS["triton"].refusal(Call(auto, q, k, v, auto.mask_for(q, k, None), 0.0)) or "")
    else:
        assert "on cpu" in refusal(Fractional(1.2), q.cpu(), k.cpu(), v.cpu())


def test_a_token_that_is_not_a_number_changes_only_rows_that_attend_to_it() -> None:
    q, k, v = torch.randn(3, 1, 1, 70, 8, generator=torch.Generator().manual_seed(0)).to(DEVICE).unbind()
    mask = torch.ones(70, dtype=torch.bool, device=DEVICE)
    mask[5] = False
    want = fractional_attention(q, k, v, attn_mask=mask, kernel="triton")
    bad_key, bad_query = k.clone(), q.clone()
    bad_key[0, 0, 5, 2] = bad_query[0, 0, 7, 1] = torch.nan
    torch.testing.assert_close(fractional_attention(q, bad_key, v, attn_mask=mask, kernel="triton"), want)
    assert fractional_attention(q, bad_key, v, kernel="triton").isnan().all()
    out = fractional_attention(bad_query, k, v, kernel="triton")
    assert torch.equal(out.isnan().any(-1).nonzero()[:, -1].cpu(), torch.tensor([7]))


@pytest.mark.parametrize("bad", [float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize("attention", [Fractional(1.2), Fractional(2.0), StudentT(1.0)], ids=str)
def test_an_infinite_key_has_no_weight_and_an_infinite_query_no_output(attention, bad) -> None:
    tokens = torch.randn(3, 1, 2, 7, 8, generator=torch.Generator().manual_seed(0))
    results = {}
    for kernel in ("reference", "triton"):
        q, k, v = (x.clone().to(DEVICE) for x in tokens)
        k[:, 1, 4, 2] = bad
        q[:, 0, 3, 1] = bad
        attention.kernel = kernel
        results[kernel] = attention(q, k, v)
    attention.kernel = "auto"
    assert results["triton"][0, 0, 3].isnan().all()
    torch.testing.assert_close(results["triton"], results["reference"], equal_nan=True, rtol=1e-5, atol=1e-5)


def test_transforms() -> None:
    """The first derivatives of torch.func are those of the kernel, the second ones those of the formula."""
    attention = Fractional(1.2, kernel="triton")
    q, k, v = torch.randn(3, 2, 2, 5, 4, generator=torch.Generator().manual_seed(0)).to(DEVICE).unbind()

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v).sin().sum()

    def second(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
        return torch.func.grad(lambda *x: sum(y.square().sum() for y in grads(*x)), (0, 1, 2))(q, k, v)

    grads = torch.func.grad(loss, (0, 1, 2))
    for transform in (grads, torch.func.vmap(grads), second, lambda *x: torch.func.jvp(attention, x, x)):
        attention.kernel = "triton"
        got = transform(q, k, v)
        attention.kernel = "reference"
        for a, b in zip(got, transform(q.double(), k.double(), v.double()), strict=True):
            torch.testing.assert_close(a.double(), b, rtol=1e-4, atol=1e-5)
