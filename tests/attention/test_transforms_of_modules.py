"""Transforms of modules: ensembles, gradients of each sample, learned values, and dropout."""

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import functional_call, grad, hessian, jvp, stack_module_state, vmap
from torch.testing import assert_close

from fna_lightning.attention import Attention, DotProduct, Fractional, MultiheadAttention, Spherical, StudentT
from fna_lightning.nn.dropout import Dropout

from helpers.attention_cpu import needs_kernel

LEARNED: dict[str, Callable[[], Attention]] = {
    "power law": lambda: Fractional(1.2, learn=["alpha", "kappa"]),
    "Gaussian": lambda: Fractional(2.0, learn=["kappa"]),
    "sphere": lambda: Spherical(1.2, learn=["alpha", "kappa"]),
    "Student": lambda: StudentT(2.0, learn=["nu", "kappa"]),
    "dot product": lambda: DotProduct(learn=["scale"]),
}
each_attention = pytest.mark.parametrize("name", LEARNED)


def models(name: str, count: int = 3) -> list[MultiheadAttention]:
    torch.manual_seed(0)
    modules = [MultiheadAttention(12, 3, LEARNED[name]()) for _ in range(count)]
    for module in modules:
        for parameter in module.parameters():
            torch.nn.init.normal_(parameter, std=0.4)
    return modules


def tokens(batch: int = 2) -> Tensor:
    return torch.randn(batch, 5, 12, generator=torch.Generator().manual_seed(1))


def loss_of(model: MultiheadAttention, x: Tensor) -> Callable[[dict[str, Tensor]], Tensor]:
    return lambda parameters: functional_call(model, parameters, (x,)).sin().sum()


@each_attention
def test_an_ensemble(name) -> None:
    """The values of kappa and alpha of the models differ, which folds the models into the heads."""
    modules, x = models(name), tokens()
    parameters, buffers = stack_module_state(modules)
    base = copy.deepcopy(modules[0]).to("meta")
    out = vmap(lambda *state: functional_call(base, state, (x,)))(parameters, buffers)
    assert_close(out, torch.stack([module(x) for module in modules]))


@each_attention
def test_gradients_of_each_sample(name) -> None:
    (model,), x = models(name, 1), tokens(3)
    parameters = {key: value.detach() for key, value in model.named_parameters()}
    grads = vmap(lambda x, parameters: grad(loss_of(model, x[None]))(parameters), in_dims=(0, None))(x, parameters)
    for index, sample in enumerate(x):
        want = torch.autograd.grad(model(sample[None]).sin().sum(), list(model.parameters()))
        for key, value in zip(parameters, want, strict=True):
            assert_close(grads[key][index], value, rtol=1e-4, atol=1e-5)


@each_attention
def test_second_derivatives_of_the_parameters(name) -> None:
    """Hessian-vector products: forward over reverse, and reverse over reverse, against float64."""
    (model,), x = models(name, 1), tokens()
    exact = copy.deepcopy(model).double()
    parameters = {key: value.detach() for key, value in exact.named_parameters()}
    _, want = jvp(grad(loss_of(exact, x.double())), (parameters,), (parameters,))
    single = {key: value.float() for key, value in parameters.items()}
    _, forward = jvp(grad(loss_of(model, x)), (single,), (single,))
    leaves = list(model.parameters())
    first = torch.autograd.grad(model(x).sin().sum(), leaves, create_graph=True)
    product = sum((gradient * leaf.detach()).sum() for gradient, leaf in zip(first, leaves, strict=True))
    reverse = torch.autograd.grad(product, leaves, materialize_grads=True)
    for index, (key, value) in enumerate(want.items()):
        scale = max(1.0, value.abs().max().item())
        for got in (forward[key], reverse[index]):
            assert_close(got.double(), value, rtol=0, atol=1e-4 * scale, msg=key)


@needs_kernel
@pytest.mark.parametrize("grouped", [False, True])
def test_an_ensemble_of_kappa_with_masks_and_grouped_heads(grouped) -> None:
    attention = Fractional(1.2, learn=["kappa"], kernel="cpu").for_heads(4)
    q, k, v = torch.randn(3, 2, 4, 5, 8, generator=torch.Generator().manual_seed(0)).unbind()
    if grouped:
        k, v = k[:, :2], v[:, :2]
    mask = torch.rand(3, 2, 1, 1, 5, generator=torch.Generator().manual_seed(1)) < 0.7
    bias = torch.randn(4, 5, 5, generator=torch.Generator().manual_seed(2))
    log_scales = torch.randn(3, 4, generator=torch.Generator().manual_seed(3))

    def loss(log_scale: Tensor, mask: Tensor, bias: Tensor) -> Tensor:
        state = {"learned.log_scale": log_scale}
        out = functional_call(attention, state, (q, k, v, mask), {"bias": bias, "enable_gqa": grouped})
        return out.sin().sum()

    in_dims = (0, 0, None)
    losses = vmap(loss, in_dims)(log_scales, mask, bias)
    grads = vmap(grad(loss, (0, 2)), in_dims)(log_scales, mask, bias)
    for index in range(3):
        leaves = (log_scales[index].clone().requires_grad_(), bias.clone().requires_grad_())
        want = loss(leaves[0], mask[index], leaves[1])
        assert_close(losses[index], want.detach())
        for got, value in zip(grads, torch.autograd.grad(want, leaves), strict=True):
            assert_close(got[index], value, rtol=1e-4, atol=1e-5)


def dropped(kernel: str = "cpu", alpha: float = 1.2) -> Fractional:
    return Fractional(alpha, dropout=0.4, kernel=kernel).train()


def qkv() -> tuple[Tensor, ...]:
    return torch.randn(3, 2, 3, 5, 8, generator=torch.Generator().manual_seed(0)).unbind()


def dropout_factors(function: Callable[..., Tensor]) -> Tensor:
    """Return the factors of the weights for seed 3: with the identity as values the output is the dropped weights."""
    torch.manual_seed(3)
    eye = torch.eye(5).expand(2, 3, 5, 5)
    q, k, _ = qkv()
    return (function(q, k, eye) > 0).double() / 0.6


def formula(factors: Tensor, alpha: float = 1.2) -> Callable[..., Tensor]:
    return lambda q, k, v: Fractional(alpha).weights(q, k) * factors @ v


@needs_kernel
@pytest.mark.parametrize("randomness", ["same", "different"])
def test_dropout_under_vmap(randomness) -> None:
    attention = dropped()
    mapped = vmap(attention, randomness=randomness)
    factors = dropout_factors(mapped)
    assert torch.equal(factors[0], factors[1]) == (randomness == "same")
    q, k, v = qkv()
    torch.manual_seed(3)
    assert_close(mapped(q, k, v).double(), formula(factors)(q.double(), k.double(), v.double()), rtol=1e-4, atol=1e-5)
    torch.manual_seed(3)
    got = vmap(grad(lambda *x: attention(*x).sin().sum(), (0, 1, 2)), randomness=randomness)(q, k, v)
    leaves = [x.double().requires_grad_() for x in (q, k, v)]
    want = torch.autograd.grad(formula(factors)(*leaves).sin().sum(), leaves)
    for a, b in zip(got, want, strict=True):
        assert_close(a.double(), b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", [pytest.param("cpu", marks=needs_kernel), "chunked", "reference"])
def test_dropout_under_vmap_needs_a_choice(kernel) -> None:
    with pytest.raises(RuntimeError, match="use the 'same' or 'different' randomness flags"):
        vmap(dropped(kernel))(*qkv())


@pytest.mark.parametrize("kernel", [pytest.param("cpu", marks=needs_kernel), "chunked", "reference"])
def test_second_derivatives_with_dropout(kernel) -> None:
    attention = dropped(kernel)
    factors = dropout_factors(attention)
    leaves = [x.clone().requires_grad_() for x in qkv()]
    exact = [x.double().requires_grad_() for x in qkv()]
    torch.manual_seed(3)
    outputs = ((attention(*leaves), leaves), (formula(factors)(*exact), exact))
    results = []
    for out, inputs in outputs:
        first = torch.autograd.grad(out.sin().sum(), inputs, create_graph=True)
        results.append((*first, *torch.autograd.grad(sum(x.square().sum() for x in first), inputs)))
    for got, want in zip(*results, strict=True):
        assert_close(got.double(), want, rtol=1e-3, atol=1e-4)


@needs_kernel
def test_forward_mode_with_dropout() -> None:
    attention, tangents = dropped(), qkv()[::-1]
    factors = dropout_factors(attention)
    torch.manual_seed(3)
    _, tangent = jvp(attention, tuple(qkv()), tuple(tangents))
    _, want = jvp(formula(factors), tuple(x.double() for x in qkv()), tuple(x.double() for x in tangents))
    assert_close(tangent.double(), want, rtol=1e-4, atol=1e-4)


@needs_kernel
def test_batched_gradients_with_dropout() -> None:
    leaves = [x.clone().requires_grad_() for x in qkv()]
    out = dropped()(*leaves)
    upstream = torch.randn(3, *out.shape)
    got = torch.autograd.grad(out, leaves, upstream, is_grads_batched=True, retain_graph=True)
    want = zip(*(torch.autograd.grad(out, leaves, x, retain_graph=True) for x in upstream), strict=True)
    for a, b in zip(got, want, strict=True):
        assert_close(a, torch.stack(b))


def test_second_derivative_of_sdpa_with_dropout_is_refused() -> None:
    leaves = [x.clone().requires_grad_() for x in qkv()]
    out = dropped("sdpa", 2.0)(*leaves)
    with pytest.raises(NotImplementedError, match=r"'sdpa' has no second derivative with dropout, got dropout=0\.4"):
        torch.autograd.grad(out.sum(), leaves, create_graph=True)


@pytest.mark.parametrize("kernel", [pytest.param("cpu", marks=needs_kernel), "chunked", "reference"])
def test_batched_gradients_can_be_differentiated(kernel) -> None:
    leaves = [x.clone().requires_grad_() for x in qkv()]
    out = Fractional(1.2, kernel=kernel)(*leaves)
    upstream = torch.randn(3, *out.shape, generator=torch.Generator().manual_seed(1))
    batched = torch.autograd.grad(out, leaves, upstream, is_grads_batched=True, create_graph=True)
    got = torch.autograd.grad(sum(x.square().sum() for x in batched), leaves, retain_graph=True)
    single = [torch.autograd.grad(out, leaves, x, create_graph=True) for x in upstream]
    want = torch.autograd.grad(sum(x.square().sum() for grads in single for x in grads), leaves)
    for a, b in zip(got, want, strict=True):
        assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "options", [{}, {"vectorize": True}, {"vectorize": True, "outer_jacobian_strategy": "forward-mode"}]
)
def test_hessian_of_autograd_functional(options) -> None:
    q, k, v = (x[:1, :1] for x in qkv())

    def loss(q: Tensor) -> Tensor:
        return Fractional(1.2)(q, k, v).sin().sum()

    got = torch.autograd.functional.hessian(loss, q, **options)
    assert_close(got, hessian(loss)(q), rtol=1e-3, atol=1e-4)


def test_dropout_layer_under_transforms() -> None:
    """The dropout layer of the networks has a C implementation, too."""
    layer, x = Dropout(0.5).train(), torch.ones(4, 50)
    out = vmap(layer, randomness="same")(x)
    assert torch.equal(out[0], out[1])
    assert set(out.unique().tolist()) == {0.0, 2.0}
    leaf = x.clone().requires_grad_()
    out = layer(leaf)
    (batched,) = torch.autograd.grad(out, leaf, torch.stack([x, 2 * x]), is_grads_batched=True)
    assert_close(batched, torch.stack([out, 2 * out]).detach())
    _, tangent = jvp(layer, (x,), (3 * x,))
    assert set(tangent.unique().tolist()) == {0.0, 6.0}
