"""The transforms of PyTorch: each gives the numbers of the formula, for every attention and kernel."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import grad, hessian, jacfwd, jacrev, jvp, vjp, vmap
from torch.testing import assert_close

from helpers.attention_cases import NAMED_ATTENTIONS
from helpers.attention_cpu import needs_kernel
from helpers.attention_formula import formula_output

CASES = [
    *(pytest.param(name, "cpu", marks=needs_kernel) for name in ("power law", "Gaussian", "sphere", "Student")),
    pytest.param("Gaussian on the sphere", "cpu", marks=needs_kernel),
    ("Gaussian", "sdpa"),
    ("dot product", "sdpa"),
    ("uniform", "sdpa"),
    ("power law", "chunked"),
    ("dot product", "chunked"),
    ("sphere", "reference"),
]
each_case = pytest.mark.parametrize(("name", "kernel"), CASES)
# (batch, heads, n, m, width); few numbers, because the formula is evaluated pair by pair.
SHAPE = (2, 2, 3, 3, 2)
Function = Callable[[Tensor, Tensor, Tensor], Tensor]


def tokens(kernel: str, seed: int = 0) -> list[Tensor]:
    b, h, n, m, d = SHAPE
    generator = torch.Generator().manual_seed(seed)
    shapes = ((b, h, n, d), (b, h, m, d), (b, h, m, d))
    # The C kernel computes in float32.
    dtype = torch.float32 if kernel == "cpu" else torch.float64
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


def allowed() -> Tensor:
    b, h, n, m, _ = SHAPE
    mask = torch.ones(b, h, n, m, dtype=torch.bool)
    mask[0, 0, :, 2] = False
    mask[1, 1, 0] = False
    return mask


def functions(name: str, kernel: str) -> tuple[Function, Function]:
    """Return the attention and its formula in float64, both with a mask."""
    attention = NAMED_ATTENTIONS[name](kernel=kernel)

    def function(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # Under vmap the samples are the batch.
        mask = allowed() if q.dim() == 4 else allowed()[0]
        return attention(q, k, v, mask)

    def formula(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        mask = allowed()
        if q.dim() == 3:
            return formula_output(attention, q[None], k[None], v[None], mask[:1])[0]
        return formula_output(attention, q, k, v, mask)

    return function, formula


def assert_near(got: Any, want: Any, kernel: str) -> None:
    got, want = ((x,) if isinstance(x, Tensor) else x for x in (got, want))
    tolerance = 2e-5 if kernel == "cpu" else 1e-9
    for a, b in zip(got, want, strict=True):
        scale = max(1.0, b.abs().max().item())
        assert_close(a.detach().double(), b.detach(), rtol=0, atol=tolerance * scale)


def doubles(*tensors: Tensor) -> list[Tensor]:
    return [x.double().requires_grad_() for x in tensors]


def loss_of(function: Function) -> Callable[[Tensor, Tensor, Tensor], Tensor]:
    return lambda q, k, v: function(q, k, v).sin().sum()


def formula_grads(formula: Function, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, ...]:
    leaves = doubles(q, k, v)
    return torch.autograd.grad(loss_of(formula)(*leaves), leaves, materialize_grads=True)


def formula_tangent(formula: Function, primals: list[Tensor], tangents: list[Tensor]) -> Tensor:
    _, tangent = torch.autograd.functional.jvp(formula, tuple(doubles(*primals)), tuple(doubles(*tangents)))
    return tangent


@each_case
def test_grad(name, kernel) -> None:
    function, formula = functions(name, kernel)
    q, k, v = tokens(kernel)
    assert_near(grad(loss_of(function), (0, 1, 2))(q, k, v), formula_grads(formula, q, k, v), kernel)


@each_case
def test_vjp(name, kernel) -> None:
    function, formula = functions(name, kernel)
    q, k, v = tokens(kernel)
    upstream = tokens(kernel, 1)[0]
    out, pullback = vjp(function, q, k, v)
    leaves = doubles(q, k, v)
    want = formula(*leaves)
    assert_near(out, want, kernel)
    assert_near(
        pullback(upstream), torch.autograd.grad(want, leaves, upstream.double(), materialize_grads=True), kernel
    )


@each_case
def test_jvp(name, kernel) -> None:
    function, formula = functions(name, kernel)
    primals, tangents = tokens(kernel), tokens(kernel, 1)
    out, tangent = jvp(function, tuple(primals), tuple(tangents))
    assert_near(out, formula(*primals), kernel)
    assert_near(tangent, formula_tangent(formula, primals, tangents), kernel)


@each_case
def test_dual_numbers(name, kernel) -> None:
    function, formula = functions(name, kernel)
    primals, tangents = tokens(kernel), tokens(kernel, 1)
    with forward_ad.dual_level():
        duals = [forward_ad.make_dual(*pair) for pair in zip(primals, tangents, strict=True)]
        out = forward_ad.unpack_dual(function(*duals))
    assert_near(out.primal, formula(*primals), kernel)
    assert_near(out.tangent, formula_tangent(formula, primals, tangents), kernel)


@each_case
def test_jacobians(name, kernel) -> None:
    function, formula = functions(name, kernel)
    q, k, v = (x[0] for x in tokens(kernel))
    want = torch.autograd.functional.jacobian(formula, tuple(doubles(q, k, v)))
    assert_near(jacrev(function, (0, 1, 2))(q, k, v), want, kernel)
    assert_near(jacfwd(function, (0, 1, 2))(q, k, v), want, kernel)


@each_case
def test_hessian(name, kernel) -> None:
    function, formula = functions(name, kernel)
    q, k, v = (x[0] for x in tokens(kernel))
    want = torch.autograd.functional.hessian(loss_of(formula), tuple(doubles(q, k, v)))
    loss = loss_of(function)
    for transform in (hessian(loss, (0, 1, 2)), jacrev(jacrev(loss, (0, 1, 2)), (0, 1, 2))):
        for got_row, want_row in zip(transform(q, k, v), want, strict=True):
            assert_near(got_row, want_row, kernel)


@each_case
def test_vmap(name, kernel) -> None:
    attention = NAMED_ATTENTIONS[name](kernel=kernel)
    q, k, v = tokens(kernel)
    want = attention(q, k, v)
    assert_close(vmap(attention)(q, k, v), want)
    nested = vmap(vmap(attention, in_dims=1, out_dims=1))(*(x.unflatten(0, (2, 1)).transpose(1, 2) for x in (q, k, v)))
    assert_close(nested.transpose(1, 2).flatten(0, 1), want)
    shared = torch.stack([attention(x, k[0], v[0]) for x in q])
    assert_close(vmap(attention, in_dims=(0, None, None))(q, k[0], v[0]), shared)


@each_case
def test_vmap_of_masks(name, kernel) -> None:
    attention = NAMED_ATTENTIONS[name](kernel=kernel)
    q, k, v = tokens(kernel)
    bias = torch.randn(allowed().shape, generator=torch.Generator().manual_seed(3)).to(q.dtype)
    for in_dims in (0, None):
        mask, added = (x if in_dims == 0 else x[0] for x in (allowed(), bias))
        want = attention(q, k, v, mask, bias=added)
        mapped = vmap(
            lambda q, k, v, mask, bias: attention(q, k, v, mask, bias=bias), in_dims=(0, 0, 0, in_dims, in_dims)
        )
        assert_close(mapped(q, k, v, mask, added), want)
        weights = vmap(
            grad(lambda bias, q, k, v: attention(q, k, v, bias=bias).sin().sum()), in_dims=(in_dims, 0, 0, 0)
        )
        leaf = bias.clone().requires_grad_() if in_dims == 0 else bias[0].expand_as(bias).clone().requires_grad_()
        (want,) = torch.autograd.grad(attention(q, k, v, bias=leaf).sin().sum(), leaf)
        assert_close(weights(added, q, k, v), want)


@each_case
def test_gradients_of_each_sample(name, kernel) -> None:
    attention = NAMED_ATTENTIONS[name](kernel=kernel)
    q, k, v = tokens(kernel)
    got = vmap(grad(lambda q, k, v: attention(q, k, v).sin().sum(), (0, 1, 2)))(q, k, v)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]
    for a, b in zip(got, torch.autograd.grad(attention(*leaves).sin().sum(), leaves), strict=True):
        assert_close(a, b)


@each_case
def test_batched_gradients(name, kernel) -> None:
    function, _ = functions(name, kernel)
    leaves = [x.requires_grad_() for x in tokens(kernel)]
    out = function(*leaves)
    upstream = torch.stack([tokens(kernel, seed)[0] for seed in (1, 2, 3)])
    got = torch.autograd.grad(out, leaves, upstream, is_grads_batched=True, retain_graph=True)
    want = [torch.autograd.grad(out, leaves, x, retain_graph=True) for x in upstream]
    for a, b in zip(got, zip(*want, strict=True), strict=True):
        assert_close(a, torch.stack(b))


@each_case
def test_create_graph(name, kernel) -> None:
    """A gradient penalty: the gradient of the squared norm of a gradient."""
    function, formula = functions(name, kernel)
    results = []
    for compute, leaves in (
        (function, [x.requires_grad_() for x in tokens(kernel)]),
        (formula, doubles(*tokens(kernel))),
    ):
        first = torch.autograd.grad(loss_of(compute)(*leaves), leaves, create_graph=True, materialize_grads=True)
        penalty = sum(x.square().sum() for x in first)
        second = torch.autograd.grad(penalty, leaves, create_graph=True, materialize_grads=True)
        third = torch.autograd.grad(sum(x.square().sum() for x in second), leaves, materialize_grads=True)
        results.append((*first, *second, *third))
    assert_near(results[0], results[1], kernel)
