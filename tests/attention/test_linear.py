"""The linear layer by oneDNN: values, gradients, and when it is left to PyTorch."""

import pytest
import torch
import torch.nn.functional as F

from fna_lightning.attention import linear as module
from fna_lightning.attention.linear import Linear, linear, usable

pytestmark = pytest.mark.skipif(module._onednn_linear() is None, reason="this build of PyTorch has no oneDNN")

# rows, inputs, outputs; all large enough for oneDNN
SHAPES = [(600, 40, 32), (37, 130, 140), (300, 4, 512), (2000, 64, 48), (900, 64, 96), (700, 130, 64)]


@pytest.fixture(autouse=True)
def switched_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(module.SWITCH, "1")


def operands(rows: int, size_in: int, size_out: int, *, bias: bool = True) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(rows)
    shapes = [(rows, size_in), (size_out, size_in), *([(size_out,)] if bias else [])]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


def close_to(expected: torch.Tensor) -> dict[str, float]:
    return {"rtol": 1e-5, "atol": 1e-5 * float(expected.detach().abs().max())}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("bias", [True, False])
def test_values_and_gradients(shape: tuple[int, int, int], bias: bool) -> None:
    inputs = operands(*shape, bias=bias)
    assert usable(inputs[0], inputs[1], inputs[2] if bias else None)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    out, expected = linear(*inputs), F.linear(*exact)
    torch.testing.assert_close(out.double(), expected, **close_to(expected))
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(1))
    grads = torch.autograd.grad(out, inputs, upstream)
    for grad, wanted in zip(grads, torch.autograd.grad(expected, exact, upstream.double()), strict=True):
        torch.testing.assert_close(grad.double(), wanted, **close_to(wanted))


@pytest.mark.parametrize("shape", SHAPES)
def test_no_gradients_wanted(shape: tuple[int, int, int]) -> None:
    inputs = operands(*shape)
    with torch.no_grad():
        out = linear(*inputs)
    assert not out.requires_grad
    torch.testing.assert_close(out, F.linear(*inputs).detach(), **close_to(out))


@pytest.mark.parametrize("layout", ["transposed", "expanded", "strided"])
@pytest.mark.parametrize("which", [0, 1])
def test_layouts(layout: str, which: int) -> None:
    inputs = [tensor.detach() for tensor in operands(256, 64, 128, bias=False)]
    rows, width = inputs[which].shape
    inputs[which] = {
        "transposed": lambda: torch.randn(width, rows).mT,
        "expanded": lambda: torch.randn(1, width).expand(rows, width),
        "strided": lambda: torch.randn(2 * rows, 3 * width)[::2, ::3],
    }[layout]()
    torch.testing.assert_close(linear(*inputs), F.linear(*inputs), rtol=1e-5, atol=1e-4)


def test_expanded_upstream_gradient() -> None:
    inputs = operands(256, 64, 128)
    linear(*inputs).sum().backward()
    others = [tensor.detach().requires_grad_() for tensor in inputs]
    F.linear(*others).sum().backward()
    for tensor, other in zip(inputs, others, strict=True):
        assert tensor.grad is not None
        assert other.grad is not None
        torch.testing.assert_close(tensor.grad, other.grad, rtol=1e-5, atol=1e-3)


@pytest.mark.parametrize("size_out", [32, 64, 96])
def test_gradient_of_a_column_major_weight(size_out: int) -> None:
    x, weight = (tensor.detach() for tensor in operands(600, 64, size_out, bias=False))
    column_major = weight.mT.contiguous().mT.requires_grad_()
    linear(x, column_major).square().sum().backward()
    expected = weight.clone().requires_grad_()
    F.linear(x, expected).square().sum().backward()
    assert column_major.grad is not None
    assert expected.grad is not None
    assert column_major.grad.stride() == column_major.stride()
    torch.testing.assert_close(column_major.grad, expected.grad, **close_to(expected.grad))


def test_batches_of_sequences() -> None:
    x = torch.randn(4, 5, 60, 32)
    layer = Linear(32, 48)
    out = layer(x)
    assert out.shape == (4, 5, 60, 48)
    torch.testing.assert_close(out, F.linear(x, layer.weight, layer.bias), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("size_in", "size_out"), [(48, 64), (64, 96), (40, 40)])
def test_gradients_of_gradients(size_in: int, size_out: int) -> None:
    def penalty(function: object, inputs: list[torch.Tensor]) -> torch.Tensor:
        out = function(*inputs)  # type: ignore[operator]
        (grad,) = torch.autograd.grad(out.square().sum(), inputs[0], create_graph=True)
        return grad.square().sum()

    inputs = operands(300, size_in, size_out)
    grads = torch.autograd.grad(penalty(linear, inputs), inputs)
    exact = [tensor.detach().double().requires_grad_() for tensor in inputs]
    for grad, wanted in zip(grads, torch.autograd.grad(penalty(F.linear, exact), exact), strict=True):
        torch.testing.assert_close(grad.double(), wanted, **close_to(wanted))


@pytest.mark.parametrize(("rows", "size_in"), [(300, 40), (300, 48), (300, 96)])
def test_batched_gradients(rows: int, size_in: int) -> None:
    inputs = operands(rows, size_in, 64)
    upstream = torch.randn(3, rows, 64)
    batched = torch.autograd.grad(linear(*inputs), inputs, upstream, is_grads_batched=True)
    for i in range(3):
        single = torch.autograd.grad(F.linear(*inputs), inputs, upstream[i])
        for grads, wanted in zip(batched, single, strict=True):
            torch.testing.assert_close(grads[i], wanted, **close_to(wanted))


def test_transforms_go_through_pytorch() -> None:
    x, weight, bias = (tensor.detach() for tensor in operands(300, 48, 64))
    mapped = torch.func.vmap(lambda x: linear(x, weight, bias))(x.expand(2, -1, -1))
    torch.testing.assert_close(mapped[1], F.linear(x, weight, bias), rtol=1e-5, atol=1e-4)
    _, tangent = torch.func.jvp(lambda x: linear(x, weight, bias), (x,), (x,))
    torch.testing.assert_close(tangent, F.linear(x, weight), rtol=1e-5, atol=1e-4)
    grad = torch.func.grad(lambda x: linear(x, weight, bias).sum())(x)
    torch.testing.assert_close(grad, weight.sum(0).expand_as(x), rtol=1e-5, atol=1e-4)


def test_autocast_goes_through_pytorch() -> None:
    x, weight, bias = operands(300, 48, 64)
    with torch.autocast("cpu", torch.bfloat16):
        assert not usable(x, weight, bias)


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.zeros(0, 4000), torch.zeros(4000, 4000)),
        (torch.zeros(1, 4000), torch.zeros(4000, 4000)),
        (torch.zeros(4000, 4000), torch.zeros(1, 4000)),
        (torch.zeros(4, 4), torch.zeros(4, 4)),
        (torch.zeros(300, 48).double(), torch.zeros(64, 48).double()),
        (torch.zeros(300, 48, device="meta"), torch.zeros(64, 48, device="meta")),
    ],
)
def test_left_to_pytorch(inputs: tuple[torch.Tensor, torch.Tensor]) -> None:
    assert not usable(*inputs, None)
    assert linear(*inputs).shape == F.linear(*inputs).shape


@pytest.mark.parametrize(
    ("x", "weight", "bias"),
    [((300, 47), (64, 48), (64,)), ((300, 48), (64, 48), (63,)), ((300, 48), (64, 48), (64, 1))],
)
def test_wrong_shapes_are_errors_of_pytorch(x: tuple[int, ...], weight: tuple[int, ...], bias: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError):
        linear(torch.zeros(x), torch.zeros(weight), torch.zeros(bias))


def test_switch(monkeypatch: pytest.MonkeyPatch) -> None:
    inputs = operands(300, 48, 64)
    monkeypatch.setenv(module.SWITCH, "0")
    assert not usable(*inputs)
    monkeypatch.setenv(module.SWITCH, "yes")
    with pytest.raises(ValueError, match=r"FNA_ONEDNN_LINEAR must be 0 \(off\), 1 \(on\) or empty .*, got 'yes'"):
        usable(*inputs)


def test_state_and_compilation() -> None:
    layer = Linear(48, 64)
    plain = torch.nn.Linear(48, 64)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(300, 48)
    torch.testing.assert_close(layer(x), plain(x), rtol=1e-5, atol=1e-5)
    compiled = torch.compile(layer, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(x), plain(x), rtol=1e-5, atol=1e-5)
