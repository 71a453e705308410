"""GELU of the C library: values and derivatives against PyTorch in float64, and when it is left to PyTorch."""

import math

import pytest
import torch
import torch.nn.functional as F
from torch.testing import assert_close

from fna_lightning import available_kernels
from fna_lightning.attention.kernels.cpu import elementwise
from fna_lightning.attention.kernels.cpu.gelu import WORTH_C
from fna_lightning.nn.gelu import GELU

needs_c = pytest.mark.skipif(available_kernels()["cpu"] != "ok", reason=available_kernels()["cpu"])
SHAPES = [(WORTH_C,), (WORTH_C + 7,), (3, 50_001), (4, 128, 257)]


@pytest.mark.parametrize("shape", SHAPES)
def test_values_and_gradients(shape: tuple[int, ...]) -> None:
    x = (3.0 * torch.randn(shape)).requires_grad_()
    exact = x.detach().double().requires_grad_()
    upstream = torch.randn(shape)
    out, expected = GELU()(x), F.gelu(exact)
    assert_close(out.double(), expected, rtol=1e-6, atol=3e-7)
    out.backward(upstream)
    expected.backward(upstream.double())
    assert x.grad is not None
    assert exact.grad is not None
    assert_close(x.grad.double(), exact.grad, rtol=1e-6, atol=1e-6)


@needs_c
def test_small_negative_values_keep_their_digits() -> None:
    x = torch.linspace(-5.0, -1.0, WORTH_C)
    assert_close(GELU()(x).double(), F.gelu(x.double()), rtol=3e-6, atol=0.0)


def test_ends() -> None:
    x = torch.tensor([0.0, 40.0, -40.0, math.inf, 1e38, -1e38, math.nan]).repeat(WORTH_C)
    out = GELU()(x)[:7]
    assert out.tolist()[:6] == [0.0, 40.0, 0.0, math.inf, x[4].item(), 0.0]
    assert math.isnan(out[6])


def test_strided_and_inference() -> None:
    x = torch.randn(300, 200).t()[::2]
    assert_close(GELU()(x), F.gelu(x), rtol=1e-6, atol=1e-6)
    with torch.inference_mode():
        assert_close(GELU()(x), F.gelu(x), rtol=1e-6, atol=1e-6)


def test_threads_do_not_change_the_values() -> None:
    x = torch.randn(400_000)
    threads = torch.get_num_threads()
    outs = []
    for count in (1, 2):
        torch.set_num_threads(count)
        outs.append(GELU()(x))
    torch.set_num_threads(threads)
    assert torch.equal(*outs)


def test_derivatives_of_gradients_and_transforms() -> None:
    x = torch.randn(WORTH_C, requires_grad=True)
    (grad,) = torch.autograd.grad(GELU()(x).square().sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(grad.sum(), x)
    (wanted,) = torch.autograd.grad(F.gelu(x).square().sum(), x, create_graph=True)
    assert_close(second, torch.autograd.grad(wanted.sum(), x)[0], rtol=1e-5, atol=1e-5)
    upstream = torch.randn(3, WORTH_C)
    (batched,) = torch.autograd.grad(GELU()(x), x, upstream, is_grads_batched=True)
    assert_close(batched, torch.stack([torch.autograd.grad(F.gelu(x), x, row)[0] for row in upstream]))
    plain = x.detach()
    _, tangent = torch.func.jvp(GELU(), (plain,), (plain,))
    assert_close(tangent, torch.func.jvp(F.gelu, (plain,), (plain,))[1])
    assert_close(torch.func.vmap(GELU())(plain.expand(2, -1))[1], F.gelu(plain), rtol=1e-6, atol=1e-6)


def test_other_types_and_compilation() -> None:
    for x in (torch.randn(WORTH_C).double(), torch.randn(WORTH_C).bfloat16(), torch.randn(WORTH_C, device="meta")):
        assert not elementwise.usable(x)
        assert GELU()(x).dtype == x.dtype
    x = torch.randn(WORTH_C)
    assert_close(torch.compile(GELU(), backend="eager", fullgraph=True)(x), F.gelu(x))
    assert_close(GELU("tanh")(x), F.gelu(x, approximate="tanh"))
