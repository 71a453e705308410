"""The C kernel as a PyTorch operator: shapes, dropout, threads, forks, compile, export, and when it is not used."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.testing import assert_close

from fna_lightning import available_kernels, fractional_attention
from fna_lightning.attention import Attention, DotProduct, Fractional
from fna_lightning.attention.kernels import KERNELS, Call, choose
from fna_lightning.attention.kernels.cpu import library as cpu_library
from fna_lightning.attention.kernels.radial import radial_attention

from helpers.attention_cpu import OUTPUT_TOLERANCE, assert_accurate, needs_kernel, random_qkv


@needs_kernel
def test_any_strides_and_leading_axes() -> None:
    q, k, v = random_qkv(33, 40, 16, 8)
    attention = Fractional(1.2, kernel="cpu")
    want = attention(q, k, v)
    split = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
    torch.testing.assert_close(attention(*split), want)
    torch.testing.assert_close(attention(q.mT.contiguous().mT, k, v), want)
    torch.testing.assert_close(attention(q[0], k[0], v[0]), want[0])
    torch.testing.assert_close(attention(q[0, 0], k[0, 0], v[0, 0]), want[0, 0])
    torch.testing.assert_close(attention(q[None], k[None], v[None]), want[None])
    torch.testing.assert_close(attention(q, k[:, :1], v[:, :1])[:, 2], attention(q[:, 2:], k[:, :1], v[:, :1])[:, 0])
    assert attention(q[:, :, :0], k, v).shape == (2, 3, 0, 8)
    assert attention(q, k[:, :, :0], v[:, :, :0]).eq(0).all()


@needs_kernel
def test_offset_is_the_position_of_the_first_query() -> None:
    q, _, v = random_qkv(100, 100, 8, 8)
    attention = Fractional(1.2, kernel="cpu", exclude_self=True)
    want = attention(q, q, v, is_causal=True)
    torch.testing.assert_close(attention(q[:, :, 37:], q, v, is_causal=True, offset=37), want[:, :, 37:])


@needs_kernel
def test_dropout_is_reproducible_and_unbiased() -> None:
    q, k, v = random_qkv(20, 110, 8, 4)
    dropped, undropped = Fractional(1.2, kernel="cpu", dropout=0.3).train(), Fractional(1.2, kernel="cpu")
    torch.manual_seed(0)
    first, second = dropped(q, k, v), dropped(q, k, v)
    torch.manual_seed(0)
    assert torch.equal(dropped(q, k, v), first)
    assert not torch.equal(second, first)
    assert torch.equal(dropped.eval()(q, k, v), undropped(q, k, v))
    dropped.train()
    draws = torch.stack([dropped(q, k, v) for _ in range(2000)])
    # five standard errors of the mean
    assert ((draws.mean(dim=0) - undropped(q, k, v)).abs() <= 5.0 * draws.std(dim=0) / 2000**0.5).all()


@needs_kernel
def test_dropout_is_independent_for_each_weight() -> None:
    n, m = 64, 192
    q, k = torch.zeros(1, 1, n, 8), torch.zeros(1, 1, m, 8)
    # with equal tokens and the identity matrix as values, the output is the matrix of dropped weights
    weights = Fractional(1.2, kernel="cpu", dropout=0.25).train()(q, k, torch.eye(m)[None, None])[0, 0] * m
    kept = weights > 0
    torch.testing.assert_close(weights[kept], torch.full_like(weights[kept], 1.0 / 0.75))
    assert abs(kept.double().mean() - 0.75) < 5.0 * (0.25 * 0.75 / (n * m)) ** 0.5
    rows = (kept.double() - 0.75) @ (kept.double() - 0.75).T / (m * 0.25 * 0.75)
    assert (rows - torch.eye(n)).abs().max() < 6.0 * m**-0.5
    columns = (kept.double() - 0.75).T @ (kept.double() - 0.75) / (n * 0.25 * 0.75)
    assert (columns - torch.eye(m)).abs().max() < 7.0 * n**-0.5


@needs_kernel
def test_dropout_is_the_same_in_the_backward_pass() -> None:
    q, k, _ = random_qkv(50, 110, 8, 8)
    eye = torch.eye(110).expand(2, 3, 110, 110).contiguous()
    attention = Fractional(1.2, kernel="cpu", dropout=0.4).train()
    torch.manual_seed(3)
    # the dropout factors of this seed: dropped weights divided by weights
    factors = attention(q, k, eye).double() / attention.weights(q.double(), k.double())
    factors = torch.where(factors > 0.5, 1.0 / 0.6, 0.0)
    v = random_qkv(50, 110, 8, 8)[2]
    upstream = torch.randn(2, 3, 50, 8, generator=torch.Generator().manual_seed(5))
    leaves, exact = [x.clone().requires_grad_() for x in (q, k, v)], [x.double().requires_grad_() for x in (q, k, v)]
    torch.manual_seed(3)
    got = torch.autograd.grad(attention(*leaves), leaves, upstream)
    out = attention.weights(exact[0], exact[1]) * factors @ exact[2]
    want = torch.autograd.grad(out, exact, upstream.double())
    assert_accurate(list(zip(("dq", "dk", "dv"), got, want, strict=True)))


@needs_kernel
def test_results_do_not_depend_on_threads() -> None:
    q, k, v = random_qkv(300, 300, 32, 32)
    before = torch.get_num_threads()
    results = []
    for threads in (1, 2, 5):
        torch.set_num_threads(threads)
        leaves = [x[:1, :1].clone().requires_grad_() for x in (q, k, v)]
        out = Fractional(1.2, kernel="cpu")(*leaves)
        results.append([out, *torch.autograd.grad(out, leaves, torch.ones_like(out))])
    torch.set_num_threads(before)
    for other in results[1:]:
        for got, want in zip(other, results[0], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-6)


@needs_kernel
def test_no_more_threads_than_pytorch_may_use() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        assert cpu_library.threads_for(64, 8, 512, 512, 64) == 3
        assert cpu_library.threads_for(1, 1, 4, 4, 8) == 1
        torch.set_num_threads(1)
        assert cpu_library.threads_for(64, 8, 512, 512, 64) == 1
    finally:
        torch.set_num_threads(before)
    code = (
        "import torch, threading, os; torch.set_num_threads(1)\n"
        "from fna_lightning.attention import Fractional\n"
        "before = len(os.listdir('/proc/self/task'))\n"
        "q = torch.randn(4, 8, 300, 32); Fractional(kernel='cpu')(q, q, q)\n"
        "print(len(os.listdir('/proc/self/task')) - before)\n"
    )
    if os.path.isdir("/proc/self/task"):
        assert _python(code) == "0"


@needs_kernel
@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_safe_after_fork() -> None:
    code = (
        "import os, torch; torch.set_num_threads(2)\n"
        "from fna_lightning.attention import Fractional\n"
        "q = torch.randn(4, 8, 300, 32); attend = Fractional(kernel='cpu'); want = attend(q, q, q)\n"
        "child = os.fork()\n"
        "if child == 0: os._exit(0 if (attend(q, q, q)[3, 7] - want[3, 7]).abs().max() < 1e-6 else 1)\n"
        "print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    assert _python(code) == "0"


@needs_kernel
def test_compile_and_export_see_one_operator() -> None:
    attention = Fractional(1.2, kernel="cpu", dropout=0.2).train()
    q, k, v = (x.requires_grad_() for x in random_qkv(40, 40, 8, 8))

    def loss(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return attention(q, k, v, is_causal=True).square().sum()

    compiled = torch.compile(loss, fullgraph=True, backend="aot_eager")
    results = []
    for function in (loss, compiled):
        torch.manual_seed(0)
        out = function(q, k, v)
        results.append([out, *torch.autograd.grad(out, (q, k, v))])
    for got, want in zip(*results, strict=True):
        torch.testing.assert_close(got, want)

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = Fractional(1.2, kernel="cpu")

        def forward(self, x: Tensor) -> Tensor:
            return self.attention(x, x, x)

    length = torch.export.Dim("length", min=2, max=512)
    program = torch.export.export(Model().eval(), (q.detach(),), dynamic_shapes=({2: length},))
    assert any(node.target is torch.ops.fna_lightning.radial_attention.default for node in program.graph.nodes)
    longer = random_qkv(77, 77, 8, 8)[0]
    torch.testing.assert_close(program.module()(longer), Model()(longer))


@needs_kernel
def test_the_operator_passes_opcheck() -> None:
    q, k, v = (x.requires_grad_() for x in random_qkv(20, 30, 8, 8))
    settings = (torch.full((3,), 5.0), torch.full((3,), 9.2), None, 0, False, False, False, 0, 0.0, "cpu")
    torch.library.opcheck(
        torch.ops.fna_lightning.radial_attention.default,
        (q, k, v, None, None, *settings),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
    eager = radial_attention(q, k, v, None, None, *settings)
    torch.testing.assert_close(torch.ops.fna_lightning.radial_attention(q, k, v, None, None, *settings)[0], eager)


@needs_kernel
def test_settings_of_inference_mode_and_fake_tensors_do_not_reach_a_later_call() -> None:
    """The tensors of kappa and the exponent are kept from call to call."""
    q, k, v = (x.requires_grad_() for x in random_qkv(8, 8, 4, 4))
    attention = Fractional(1.2, 0.123, kernel="cpu")
    with torch.inference_mode():
        want = attention(q, k, v)
    mode = FakeTensorMode()
    fake = [mode.from_tensor(x.detach()) for x in (q, k, v)]
    with mode:
        assert attention(*fake).shape == (2, 3, 8, 4)
        assert Fractional(1.2, 0.321, kernel="cpu")(*fake).shape == (2, 3, 8, 4)
    out = attention(q, k, v)
    assert_close(out.detach(), want)
    out.sum().backward()
    assert Fractional(1.2, 0.321, kernel="cpu")(q, k, v).isfinite().all()


@needs_kernel
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_every_instruction_set_is_accurate(isa) -> None:
    code = (
        "import torch; from fna_lightning.attention import Fractional, Spherical\n"
        "from fna_lightning.attention.kernels.cpu import library\n"
        "print(library.instruction_set())\n"
        "g = torch.Generator().manual_seed(0); worst = 0.0; bias = torch.randn(2, 130, 130, generator=g)\n"
        "for attention, d, scale in ((Fractional(1.2), 33, 1), (Fractional(1.2), 8, 1), (Fractional(2.0), 32, 1),\n"
        "                       (Fractional(1.2, 'vision'), 64, 100), (Spherical(1.2), 20, 1)):\n"
        "    x = [scale * torch.randn(1, 2, 130, d, generator=g) for _ in range(4)]; both = []\n"
        "    for kernel, dtype in (('cpu', torch.float32), ('reference', torch.float64)):\n"
        "        attention.kernel = kernel; leaves = [t.to(dtype).requires_grad_() for t in x[:3]]\n"
        "        out = attention(*leaves, is_causal=True)\n"
        "        both.append([out] if scale > 1 else [out, *torch.autograd.grad(out, leaves, x[3].to(dtype))])\n"
        "        leaves = [leaves[0], *(t[:, :1] for t in leaves[1:]), bias.to(dtype).requires_grad_()]\n"
        "        out = attention(*leaves[:3], bias=leaves[3], enable_gqa=True)\n"
        "        both[-1] += [out] if scale > 1 else [out, *torch.autograd.grad(out, leaves, x[3].to(dtype))]\n"
        "    worst = max(worst, *(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*both)))\n"
        "print(worst)\n"
    )
    chosen, worst = _python(code, FNA_CPU_ISA=isa).splitlines()
    if chosen != isa:
        pytest.skip(f"this CPU does not support {isa}")
    assert float(worst) <= OUTPUT_TOLERANCE


def test_it_can_be_disabled(monkeypatch) -> None:
    q, k, v = random_qkv(4, 4, 8, 8)
    monkeypatch.setenv(cpu_library.DISABLE, "1")
    assert available_kernels()["cpu"] == "switched off by the environment variable FNA_DISABLE_CPU_KERNEL"
    auto, named = Fractional(1.2), Fractional(1.2, kernel="cpu")
    assert choose(Call(auto, q, k, v, auto.mask_for(q, k, None), 0.0)).name == "chunked"
    with pytest.raises(RuntimeError, match=r"'cpu' cannot run here: switched off .* one of chunked"):
        named(q, k, v)


def test_a_missing_library_is_reported_and_auto_uses_another_kernel(monkeypatch, tmp_path) -> None:
    q, k, v = random_qkv(4, 4, 8, 8)
    monkeypatch.delenv(cpu_library.DISABLE, raising=False)
    monkeypatch.setattr(cpu_library, "PATH", tmp_path / "nothing.so")
    cpu_library.load.cache_clear()
    try:
        assert "was not built with this installation" in available_kernels()["cpu"]
        torch.testing.assert_close(Fractional(1.2)(q, k, v), Fractional(1.2, kernel="reference")(q, k, v))
    finally:
        cpu_library.load.cache_clear()


def test_a_refusal_names_its_reason() -> None:
    q, k, v = random_qkv(4, 4, 8, 8)
    kernel = KERNELS["cpu"]

    def refusal(attention: Attention, *tensors: Tensor) -> str:
        return kernel.refusal(Call(attention, *tensors, attention.mask_for(q, k, None), 0.0)) or ""

    assert refusal(Fractional(1.2), q, k, v) == ""
    assert "got torch.float64" in refusal(Fractional(1.2), q.double(), k.double(), v.double())
    assert "density_power" in refusal(Fractional(1.2, density_power=0.5), q, k, v)
    assert "DotProduct() is not a function of a distance" in refusal(DotProduct(), q, k, v)
    assert "on meta" in refusal(Fractional(1.2), *(x.to("meta") for x in (q, k, v)))


@needs_kernel
def test_denormals_are_flushed_inside_the_kernel_only() -> None:
    """The kernel flushes denormals for speed; the floating-point mode of the caller is unchanged afterwards."""
    q, k, v = torch.randn(3, 2, 3, 40, 8, generator=torch.Generator().manual_seed(0)).unbind()
    v.requires_grad_()
    fractional_attention(q, k, v, kernel="cpu").backward(torch.full((2, 3, 40, 8), 1e-39))
    assert v.grad.abs().max() < 1e-37
    assert (torch.full((4,), 1e-30) * 1e-10).ne(0).all()


def _python(code: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return result.stdout.strip()
