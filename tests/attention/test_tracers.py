"""Tracers, modes and subclasses of Tensor: they see the operator, and the recorded programs give the right numbers."""

import io
import logging
import warnings
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor, nn
from torch.func import functionalize, grad, jvp, linearize, vmap
from torch.fx.experimental.proxy_tensor import make_fx
from torch.overrides import TorchFunctionMode
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint
from torch.utils.flop_counter import FlopCounterMode

from fna_lightning import fractional_attention
from fna_lightning.attention import Fractional, StudentT, transforms
from fna_lightning.attention.kernels.radial import radial_attention

from helpers.attention_cases import NAMED_ATTENTIONS
from helpers.attention_cpu import needs_kernel

CASES = [
    pytest.param("power law", "cpu", marks=needs_kernel),
    pytest.param("sphere", "cpu", marks=needs_kernel),
    ("power law", "auto"),
    ("Gaussian", "sdpa"),
    ("power law", "chunked"),
    ("sphere", "reference"),
]
each_case = pytest.mark.parametrize(("name", "kernel"), CASES)
Function = Callable[..., Any]


def tokens(seed: int = 0, n: int = 5, heads: int = 3) -> list[Tensor]:
    # Not views of one tensor: jvp inside torch.compile fails with an assertion of PyTorch for those.
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(2, heads, n, 4, generator=generator) for _ in range(3)]


def causal(name: str, kernel: str) -> Function:
    attention = NAMED_ATTENTIONS[name](kernel=kernel)
    return lambda q, k, v: attention(q, k, v, is_causal=True)


def gradient(function: Function) -> Function:
    return grad(lambda q, k, v: function(q, k, v).sin().sum(), (0, 1, 2))


def tangent(function: Function) -> Function:
    return lambda q, k, v: jvp(function, (q, k, v), (k, v, q))[1]


PROGRAMS = {
    "output": lambda function: function,
    "grad": gradient,
    "vmap of grad": lambda function: vmap(gradient(function)),
    "jvp": tangent,
}


@pytest.mark.parametrize("program", PROGRAMS)
@each_case
def test_make_fx(name, kernel, program) -> None:
    function = PROGRAMS[program](causal(name, kernel))
    graph = make_fx(function)(*tokens())
    assert_close(graph(*tokens(1)), function(*tokens(1)))


@each_case
@pytest.mark.parametrize(
    "options", [{"pre_dispatch": True}, {"tracing_mode": "symbolic"}], ids=["pre-dispatch", "symbolic"]
)
def test_make_fx_with_options(name, kernel, options) -> None:
    function = causal(name, kernel)
    assert_close(make_fx(function, **options)(*tokens())(*tokens(1)), function(*tokens(1)))


@each_case
def test_jit_trace(name, kernel) -> None:
    function = causal(name, kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(function, tokens())
    # With one kernel for all lengths, the program is right for another length, too.
    other = tokens(1) if kernel == "chunked" else tokens(1, n=9)
    assert_close(traced(*other), function(*other))
    leaves = [x.requires_grad_() for x in tokens(1)]
    got = torch.autograd.grad(traced(*leaves).sin().sum(), leaves)
    assert_close(got, gradient(function)(*tokens(1)), rtol=1e-4, atol=1e-5)


def test_a_traced_program_runs_without_this_library() -> None:
    """``auto`` records PyTorch operators only."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(causal("power law", "auto"), tokens())
    assert "fna_lightning::" not in str(traced.inlined_graph)


class Causal(nn.Module):
    def __init__(self, attention: nn.Module) -> None:
        super().__init__()
        self.attention = attention

    def forward(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return self.attention(q, k, v, is_causal=True)


def onnx_bytes(attention: nn.Module) -> bytes:
    file = io.BytesIO()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            Causal(attention).eval(),
            tuple(tokens()),
            file,
            dynamo=False,
            input_names=["q", "k", "v"],
            dynamic_axes={name: {2: "n"} for name in ("q", "k", "v")},
            opset_version=17,
        )
    return file.getvalue()


@pytest.mark.parametrize(
    "name", ["power law", "Gaussian", "sphere", "Gaussian on the sphere", "Student", "dot product"]
)
def test_onnx_by_torchscript(name) -> None:
    pytest.importorskip("onnx")
    runtime = pytest.importorskip("onnxruntime")
    attention = NAMED_ATTENTIONS[name]()
    session = runtime.InferenceSession(onnx_bytes(attention), providers=["CPUExecutionProvider"])
    for n in (5, 9):
        q, k, v = tokens(1, n)
        (out,) = session.run(None, {"q": q.numpy(), "k": k.numpy(), "v": v.numpy()})
        assert_close(torch.from_numpy(out), attention(q, k, v, is_causal=True), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", [pytest.param("cpu", marks=needs_kernel), "chunked"])
def test_onnx_refuses_a_named_kernel_that_it_cannot_contain(kernel) -> None:
    pytest.importorskip("onnx")
    with pytest.raises(RuntimeError, match=rf"kernel '{kernel}' cannot be exported to ONNX; use kernel='auto'"):
        onnx_bytes(Fractional(1.2, kernel=kernel))


@each_case
@pytest.mark.parametrize("program", ["linearize", "functionalize", "checkpoint"])
def test_other_transforms(name, kernel, program) -> None:
    function = causal(name, kernel)
    q, k, v = tokens()
    if program == "linearize":
        out, tangents = linearize(function, q, k, v)
        assert_close(out, function(q, k, v))
        assert_close(tangents(k, v, q), tangent(function)(q, k, v))
    elif program == "functionalize":
        assert_close(functionalize(function)(q, k, v), function(q, k, v))
    else:
        leaves = [x.requires_grad_() for x in (q, k, v)]
        out = checkpoint(function, *leaves, use_reentrant=False)
        assert_close(torch.autograd.grad(out.sin().sum(), leaves), gradient(function)(*tokens()))


@pytest.mark.parametrize("program", ["output", "grad", "jvp"])
@pytest.mark.parametrize(("name", "kernel"), [CASES[0], ("power law", "reference")])
def test_transforms_inside_torch_compile(name, kernel, program) -> None:
    function = PROGRAMS[program](causal(name, kernel))
    compiled = torch.compile(function, backend="aot_eager")
    assert_close(compiled(*tokens()), function(*tokens()))


@needs_kernel
def test_forward_mode_through_a_recorded_graph_is_refused() -> None:
    """PyTorch would return no tangent for the operator, without an error."""
    graph = make_fx(causal("power law", "cpu"))(*tokens())
    with pytest.raises(NotImplementedError, match="no forward-mode derivative"):
        jvp(graph, tuple(tokens()), tuple(tokens()))


class Recorder(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


class FunctionRecorder(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.append(str(func))
        return func(*args, **(kwargs or {}))


@needs_kernel
@pytest.mark.parametrize("mode", [Recorder, FunctionRecorder])
def test_modes_see_the_operator(mode) -> None:
    function = causal("power law", "cpu")
    leaves = [x.requires_grad_() for x in tokens()]
    with mode() as recorder:
        out = function(*leaves)
        grads = torch.autograd.grad(out.sin().sum(), leaves)
    assert any("radial_attention" in name for name in recorder.names)
    if mode is Recorder:
        assert any("radial_attention_backward" in name for name in recorder.names)
    assert_close(out, function(*leaves))
    assert_close(grads, gradient(function)(*tokens()))


@needs_kernel
def test_flops_are_counted_as_those_of_attention() -> None:
    b, h, n, d = 2, 3, 5, 4
    leaves = [x.requires_grad_() for x in tokens()]
    with FlopCounterMode(display=False) as counter:
        out = fractional_attention(*leaves)
    product = 2 * b * h * n * n * d
    assert counter.get_total_flops() == 2 * product
    with FlopCounterMode(display=False) as counter:
        fractional_attention(*leaves).sum().backward()
    assert counter.get_total_flops() == 7 * product
    assert out.requires_grad


@needs_kernel
def test_grouped_heads_count_every_query_head() -> None:
    q, k, v = tokens()
    with FlopCounterMode(display=False) as counter:
        fractional_attention(q, k[:, :1], v[:, :1], enable_gqa=True)
    assert counter.get_total_flops() == 2 * 2 * 2 * 3 * 5 * 5 * 4


class Subclass(Tensor):
    pass


@each_case
@pytest.mark.parametrize("position", [0, 1, 2])
def test_subclasses(name, kernel, position) -> None:
    function = causal(name, kernel)
    inputs = tokens()
    want = function(*inputs)
    inputs[position] = inputs[position].as_subclass(Subclass)
    assert_close(function(*inputs).as_subclass(Tensor), want)


class Logged(Tensor):
    """A subclass that counts the functions it is passed to."""

    names: ClassVar[list[str]] = []

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        cls.names.append(str(func))
        return super().__torch_function__(func, types, args, kwargs)


@needs_kernel
@pytest.mark.parametrize("position", [0, 1, 2, 3, 4, 5, 6])
def test_every_tensor_of_the_operator_may_be_a_subclass(position) -> None:
    mask, bias = torch.ones(5, 5, dtype=torch.bool).tril(), torch.zeros(5, 5)
    inputs = [*tokens(), mask, bias, torch.ones(3), 2 * torch.ones(3), None]
    settings = (0, False, False, False, 0, 0.0, "cpu")
    want = radial_attention(*inputs, *settings)
    inputs[position] = inputs[position].as_subclass(Logged)
    Logged.names.clear()
    out = radial_attention(*inputs, *settings)
    assert any("radial_attention" in name for name in Logged.names)
    assert_close(out.as_subclass(Tensor), want)


META = "meta"


@pytest.mark.parametrize("position", ["q", "k", "v", "attn_mask", "bias", "kappa"])
def test_a_tensor_on_another_device_is_refused(position) -> None:
    q, k, v = tokens()
    inputs: dict[str, Any] = {"q": q, "k": k, "v": v, "mask": None, "bias": None}
    attention = Fractional(1.2)
    match position:
        case "attn_mask":
            inputs["mask"] = torch.ones(5, 5, dtype=torch.bool, device=META)
        case "bias":
            inputs["bias"] = torch.ones(5, 5, device=META)
        case "kappa":
            attention = Fractional(1.2, learn=["kappa"]).to(META)
        case _:
            inputs[position] = inputs[position].to(META)
    with pytest.raises(ValueError, match=r"on meta.*move them to the same device|on cpu.*move them to the same device"):
        attention(**inputs)


def test_meta_tensors_have_the_shape_of_the_output() -> None:
    q, k, v = (x.to(META) for x in tokens())
    out = fractional_attention(q, k, v)
    assert out.is_meta
    assert out.shape == q.shape


@needs_kernel
def test_the_memory_of_second_derivatives_is_logged_once(caplog) -> None:
    transforms.warn_quadratic_memory.cache_clear()
    with caplog.at_level(logging.WARNING, logger="fna_lightning"):
        for _ in range(2):
            tangent(causal("power law", "cpu"))(*tokens())
    messages = [record.message for record in caplog.records if "whole (n, m) matrix" in record.message]
    assert len(messages) == 1


@needs_kernel
def test_a_constant_of_a_transform_does_not_reach_a_later_call() -> None:
    """Tensors of constants are stored; one that was created under a transform would be invalid afterwards."""
    attention = StudentT(1.0, 0.7531, kernel="cpu")
    first = gradient(attention)(*tokens())
    second = gradient(attention)(*tokens())
    assert_close(first, second)
    assert attention(*tokens()).isfinite().all()
