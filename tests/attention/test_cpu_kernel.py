"""The C kernel against the float64 truth, and what it promises to PyTorch: threads, forks, dropout, compile, export."""

import os
import subprocess
import sys
from collections.abc import Callable
from itertools import product

import pytest
import torch
from torch import Tensor, nn

from fna_lightning import available_kernels, fractional_attention
from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical
from fna_lightning.attention.kernels import KERNELS, Call, choose, cpu_library
from fna_lightning.attention.kernels.cpu.op import radial_attention
from fna_lightning.attention.radial import Radial

needs_kernel = pytest.mark.skipif(
    cpu_library.missing() is not None, reason=f"no C kernel here: {cpu_library.missing()}"
)

# largest error over largest value
OUTPUT, GRADIENT = 2e-6, 2e-5
# below this a gradient has no scale of its own: that of a softmax over one key is 0
LEAST_SCALE = 1e-3

KINDS: dict[str, Callable[..., Attention]] = {
    "power law": lambda **rest: Fractional(1.2, **rest),
    "power law, vision": lambda **rest: Fractional(1.2, "vision", **rest),
    "Gaussian": lambda **rest: Fractional(2.0, **rest),
    "sphere": lambda **rest: Spherical(1.2, **rest),
    "Gaussian on the sphere": lambda **rest: Spherical(2.0, **rest),
}
RESTRICTIONS = ["nothing", "padding", "causal", "general", "self", "causal and padding", "one mask for all"]
# n, m, head width, value width: odd numbers, more than one block of keys and of queries
SIZES = [(5, 3, 1, 1), (65, 65, 8, 8), (50, 130, 33, 20), (30, 30, 64, 64), (200, 200, 32, 32), (7, 300, 4, 70)]


def tokens(n: int, m: int, d: int, d_v: int, scale: float = 1.0, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, length, d, generator=generator) * scale for length in (n, m))
    return q, k, torch.randn(2, 3, m, d_v, generator=generator)


def restrict(name: str, n: int, m: int) -> tuple[Tensor | None, bool, bool]:
    """Return mask, is_causal and exclude_self."""
    generator = torch.Generator().manual_seed(7)
    padding = (torch.arange(m) < torch.tensor([m, m // 2])[:, None])[:, None, None, :]
    general = torch.rand(2, 3, n, m, generator=generator) < 0.5
    # a row that sees nothing
    general[0, 0, n // 2] = False
    return {
        "nothing": (None, False, False),
        "padding": (padding, False, False),
        "causal": (None, True, False),
        "general": (general, False, False),
        "self": (None, False, n == m),
        "causal and padding": (padding, True, False),
        "one mask for all": (general[0, 1], False, False),
    }[name]


def both(
    make: Callable[..., Attention], q: Tensor, k: Tensor, v: Tensor, restriction: str = "nothing", *, tied: bool = False
) -> list[tuple[str, Tensor, Tensor]]:
    """Return (name, got, truth) of the output and every gradient."""
    mask, causal, exclude_self = restrict(restriction, q.size(-2), k.size(-2))
    results = []
    for kernel, dtype in (("cpu", torch.float32), ("reference", torch.float64)):
        attention = make(kernel=kernel, exclude_self=exclude_self)
        leaves = [x.to(dtype).requires_grad_() for x in ((q, v) if tied else (q, k, v))]
        out = attention(leaves[0], leaves[0] if tied else leaves[1], leaves[-1], mask, is_causal=causal)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
        results.append([out, *torch.autograd.grad(out, leaves, upstream)])
    names = ["output", "dq and dk", "dv"] if tied else ["output", "dq", "dk", "dv"]
    return list(zip(names, *results, strict=True))


def assert_true(pairs: list[tuple[str, Tensor, Tensor]]) -> None:
    for name, got, want in pairs:
        assert got.isfinite().all(), name
        error = (got.double() - want).abs().max() / want.abs().max().clamp_min(LEAST_SCALE)
        assert error <= (OUTPUT if name == "output" else GRADIENT), f"{name} is wrong by {error:.1e}"


@needs_kernel
@pytest.mark.parametrize("restriction", RESTRICTIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_output_and_gradients_are_the_truth(kind, restriction) -> None:
    for n, m, d, d_v in SIZES:
        assert_true(both(KINDS[kind], *tokens(n, m, d, d_v), restriction))


@needs_kernel
@pytest.mark.parametrize("kind", KINDS)
def test_one_key_is_the_whole_attention(kind) -> None:
    q, k, v = (x.requires_grad_() for x in tokens(1, 1, 8, 8))
    out = KINDS[kind](kernel="cpu")(q, k, v)
    torch.testing.assert_close(out, v)
    grads = torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    for grad, want in zip(grads, (0.0, 0.0, 1.0), strict=True):
        torch.testing.assert_close(grad, torch.full_like(grad, want), rtol=1e-6, atol=1e-6)


@needs_kernel
@pytest.mark.parametrize("tied", [False, True], ids=["untied", "tied"])
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0, 100.0])
def test_the_scale_of_the_tokens_does_not_matter(scale, tied) -> None:
    for kind, restriction, d in product(("power law", "power law, vision"), RESTRICTIONS, (8, 32, 64)):
        assert_true(both(KINDS[kind], *tokens(130, 130, d, d, scale), restriction, tied=tied))


@needs_kernel
def test_tokens_near_the_end_of_float32_are_no_nan() -> None:
    q, k, v = tokens(130, 130, 64, 64, scale=1e18)
    truth = Fractional(1.2, 1.0, kernel="reference")(q.double(), k.double(), v.double())
    ours, written_out = (Fractional(1.2, 1.0, kernel=name)(q, k, v) for name in ("cpu", "reference"))
    assert (ours - truth).abs().max() < (written_out - truth).abs().max()


@needs_kernel
@pytest.mark.parametrize("kappa", [1e-3, 1e-6, 1e-12])
@pytest.mark.parametrize("d", [8, 33])
def test_a_gaussian_of_tokens_many_kappa_apart_is_the_nearest_value(d, kappa) -> None:
    q, k, v = tokens(60, 130, d, 8, scale=30.0)
    truth = Fractional(2.0, kappa, kernel="reference")(q.double(), k.double(), v.double())
    torch.testing.assert_close(Fractional(2.0, kappa, kernel="cpu")(q, k, v).double(), truth, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("attention", "value"),
    [(Fractional(1.2, 1e-20), "1e-20"), (Spherical(2.0, 1e-6), "1e-06")],
    ids=["plane", "sphere"],
)
def test_a_kappa_below_the_range_of_the_kernel_is_left_to_the_others(attention, value) -> None:
    q, k, v = tokens(5, 6, 8, 8)
    reason = KERNELS["cpu"].refusal(Call(attention, q, k, v, attention.visibility(q, k, None), 0.0))
    assert f"got {value}" in (reason or "")
    exact = type(attention)(attention.alpha, attention.kappa, kernel="reference")
    torch.testing.assert_close(
        attention(q, k, v).double(), exact(q.double(), k.double(), v.double()), rtol=1e-4, atol=1e-4
    )


@needs_kernel
@pytest.mark.parametrize("scale", [1.0, 100.0])
@pytest.mark.parametrize("kind", KINDS)
def test_clusters_are_as_exact_as_lone_tokens(kind, scale) -> None:
    generator = torch.Generator().manual_seed(2)
    centers = torch.randn(2, 3, 4, 32, generator=generator)
    near = centers.repeat_interleave(25, dim=2) + 1e-2 * torch.randn(2, 3, 100, 32, generator=generator)
    near = near * scale
    v = torch.randn(2, 3, 100, 16, generator=generator)
    assert_true(both(KINDS[kind], near, near.flip(-2), v))
    assert_true(both(KINDS[kind], near, near, v, tied=True))


@needs_kernel
@pytest.mark.parametrize("d", [8, 32])
def test_a_token_is_at_no_distance_from_itself(d) -> None:
    q, _, v = tokens(150, 150, d, 8)
    shifted = q + 10.0
    # with so small a scale a token sees only what is at distance 0
    out = Fractional(1.2, 1e-6, kernel="cpu")(shifted, shifted, v)
    torch.testing.assert_close(out, v, rtol=1e-4, atol=1e-4)


@needs_kernel
@pytest.mark.parametrize("kind", ["power law", "power law, vision", "Gaussian"])
def test_attention_does_not_depend_on_the_origin(kind) -> None:
    q, k, v = tokens(150, 120, 32, 8)
    # a power of 2 far from the tokens: adding it rounds them, and the truth is that of the rounded tokens
    q, k = q + 64.0, k + 64.0
    assert_true(both(KINDS[kind], q, k, v))


@needs_kernel
def test_antipodes_are_exact_and_their_gradient_is_finite() -> None:
    q, _, v = tokens(40, 40, 16, 8)
    # nearer, the unit vectors themselves have lost the digits in float32
    nearly = -q + 1e-2 * torch.randn(q.shape, generator=torch.Generator().manual_seed(3))
    assert_true(both(KINDS["sphere"], q, nearly, v))
    leaf = q.clone().requires_grad_()
    (grad,) = torch.autograd.grad(Spherical(1.2, kernel="cpu")(leaf, -q, v).sum(), leaf)
    assert grad.isfinite().all()


@needs_kernel
def test_a_row_that_sees_nothing_is_0_and_so_is_its_gradient() -> None:
    q, k, v = (x.requires_grad_() for x in tokens(60, 110, 8, 8))
    mask = torch.ones(60, 110, dtype=torch.bool)
    mask[13] = False
    out = Fractional(1.2, kernel="cpu")(q, k, v, mask)
    assert out[:, :, 13].eq(0).all()
    grads = torch.autograd.grad(out.square().sum() + out[:, :, 13].sum(), (q, k, v))
    assert grads[0][:, :, 13].eq(0).all()
    assert all(grad.isfinite().all() for grad in grads)


@needs_kernel
@pytest.mark.parametrize("manifold", ["euclidean", "sphere"])
@pytest.mark.parametrize("gaussian", [False, True], ids=["power law", "Gaussian"])
def test_gradients_of_kappa_and_the_exponent_are_the_truth(gaussian, manifold) -> None:
    n, d, sphere = 130, 32, manifold == "sphere"
    q, k, v = tokens(n, n, d, 16)
    kappa, exponent = torch.tensor([3.0, 20.0, 200.0]), torch.tensor([33.2, 10.0, 33.8])
    if gaussian:
        kappa = torch.tensor([4.0, 6.0, 9.0]) / (6.0 if sphere else 1.0)
    upstream = torch.randn(v.shape, generator=torch.Generator().manual_seed(5))

    def truth(kappa: Tensor, exponent: Tensor) -> Tensor:
        attention = Spherical(1.2) if sphere else Fractional(1.2)
        hops = attention.distance(q.double(), k.double()) / kappa[:, None, None]
        logits = -hops.square() if gaussian else -exponent[:, None, None] * hops.log1p()
        return logits.softmax(dim=-1) @ v.double()

    exact = [x.double().requires_grad_() for x in (kappa, exponent)]
    assert torch.autograd.gradcheck(lambda *x: truth(*x)[0, :, 0, :2], exact)
    want = torch.autograd.grad(truth(*exact), exact, upstream.double(), allow_unused=True)
    leaves = [x.requires_grad_() for x in (kappa, exponent)]
    rule = Radial(gaussian, sphere, *leaves)

    class Learned(Fractional):
        def radial(self, q: Tensor) -> Radial:
            return rule

    got = torch.autograd.grad(Learned(kernel="cpu")(q, k, v), leaves, upstream, allow_unused=True)
    for name, a, b in zip(("kappa", "exponent"), got, want, strict=True):
        truth_of = torch.zeros(3, dtype=torch.float64) if b is None else b
        error = (a.double() - truth_of).abs().max() / truth_of.abs().max().clamp_min(LEAST_SCALE)
        assert error <= GRADIENT, f"{name} is wrong by {error:.1e}"


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_is_computed_in_single(dtype) -> None:
    q, k, v = (x.to(dtype) for x in tokens(70, 70, 16, 8))
    out = Fractional(1.2, kernel="cpu")(q, k, v)
    assert out.dtype == dtype
    exact = Fractional(1.2, kernel="reference")(q.double(), k.double(), v.double())
    # one rounding to the type of the values, no other
    torch.testing.assert_close(out, exact.to(dtype), rtol=torch.finfo(dtype).eps, atol=1e-5)


@needs_kernel
def test_any_strides_and_leading_axes() -> None:
    q, k, v = tokens(33, 40, 16, 8)
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
def test_offset_is_the_place_of_the_first_query() -> None:
    q, _, v = tokens(100, 100, 8, 8)
    attention = Fractional(1.2, kernel="cpu", exclude_self=True)
    want = attention(q, q, v, is_causal=True)
    torch.testing.assert_close(attention(q[:, :, 37:], q, v, is_causal=True, offset=37), want[:, :, 37:])


@needs_kernel
def test_dropout_is_reproducible_and_unbiased() -> None:
    q, k, v = tokens(20, 110, 8, 4)
    dropped, whole = Fractional(1.2, kernel="cpu", dropout=0.3).train(), Fractional(1.2, kernel="cpu")
    torch.manual_seed(0)
    first, second = dropped(q, k, v), dropped(q, k, v)
    torch.manual_seed(0)
    assert torch.equal(dropped(q, k, v), first)
    assert not torch.equal(second, first)
    assert torch.equal(dropped.eval()(q, k, v), whole(q, k, v))
    dropped.train()
    draws = torch.stack([dropped(q, k, v) for _ in range(2000)])
    # five standard errors of the mean
    assert ((draws.mean(dim=0) - whole(q, k, v)).abs() <= 5.0 * draws.std(dim=0) / 2000**0.5).all()


@needs_kernel
def test_dropout_drops_each_weight_on_its_own() -> None:
    n, m = 64, 192
    q, k = torch.zeros(1, 1, n, 8), torch.zeros(1, 1, m, 8)
    # equal tokens and a unit matrix of values: the output is the dropped weights themselves
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
    q, k, _ = tokens(50, 110, 8, 8)
    eye = torch.eye(110).expand(2, 3, 110, 110).contiguous()
    attention = Fractional(1.2, kernel="cpu", dropout=0.4).train()
    torch.manual_seed(3)
    # the factors of this seed: what is left of the weights, over the weights
    factors = attention(q, k, eye).double() / attention.weights(q.double(), k.double())
    factors = torch.where(factors > 0.5, 1.0 / 0.6, 0.0)
    v = tokens(50, 110, 8, 8)[2]
    upstream = torch.randn(2, 3, 50, 8, generator=torch.Generator().manual_seed(5))
    leaves, exact = [x.clone().requires_grad_() for x in (q, k, v)], [x.double().requires_grad_() for x in (q, k, v)]
    torch.manual_seed(3)
    got = torch.autograd.grad(attention(*leaves), leaves, upstream)
    out = attention.weights(exact[0], exact[1]) * factors @ exact[2]
    want = torch.autograd.grad(out, exact, upstream.double())
    assert_true(list(zip(("dq", "dk", "dv"), got, want, strict=True)))


@needs_kernel
def test_results_do_not_depend_on_threads() -> None:
    q, k, v = tokens(300, 300, 32, 32)
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
    q, k, v = (x.requires_grad_() for x in tokens(40, 40, 8, 8))

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
    longer = tokens(77, 77, 8, 8)[0]
    torch.testing.assert_close(program.module()(longer), Model()(longer))


@needs_kernel
def test_the_operator_keeps_pytorchs_rules() -> None:
    q, k, v = (x.requires_grad_() for x in tokens(20, 30, 8, 8))
    settings = (torch.full((3,), 5.0), torch.full((3,), 9.2), None, False, False, False, False, 0, 0.0)
    torch.library.opcheck(
        torch.ops.fna_lightning.radial_attention.default,
        (q, k, v, None, *settings),
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration"),
    )
    eager = radial_attention(q, k, v, None, *settings)
    torch.testing.assert_close(torch.ops.fna_lightning.radial_attention(q, k, v, None, *settings)[0], eager)


@needs_kernel
def test_a_second_derivative_is_refused() -> None:
    q = tokens(8, 8, 4, 4)[0].requires_grad_()
    out = Fractional(1.2, kernel="cpu")(q, q, q).sum()
    with pytest.raises(NotImplementedError, match=r"no second derivative.*without create_graph=True"):
        torch.autograd.grad(out, q, create_graph=True)


@needs_kernel
@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512"])
def test_every_instruction_set_gives_the_same(isa) -> None:
    code = (
        "import torch; from fna_lightning.attention import Fractional, Spherical\n"
        "from fna_lightning.attention.kernels import cpu_library\n"
        "print(cpu_library.instruction_set())\n"
        "g = torch.Generator().manual_seed(0); worst = 0.0\n"
        "for kind, d, scale in ((Fractional(1.2), 33, 1), (Fractional(1.2), 8, 1), (Fractional(2.0), 32, 1),\n"
        "                       (Fractional(1.2, 'vision'), 64, 100), (Spherical(1.2), 20, 1)):\n"
        "    x = [scale * torch.randn(1, 2, 130, d, generator=g) for _ in range(4)]; both = []\n"
        "    for kernel, dtype in (('cpu', torch.float32), ('reference', torch.float64)):\n"
        "        kind.kernel = kernel; leaves = [t.to(dtype).requires_grad_() for t in x[:3]]\n"
        "        out = kind(*leaves, is_causal=True)\n"
        "        both.append([out] if scale > 1 else [out, *torch.autograd.grad(out, leaves, x[3].to(dtype))])\n"
        "    worst = max(worst, *(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(*both)))\n"
        "print(worst)\n"
    )
    chosen, worst = _python(code, FNA_CPU_ISA=isa).splitlines()
    if chosen != isa:
        pytest.skip(f"this processor has no {isa}")
    assert float(worst) <= OUTPUT


def test_it_can_be_switched_off(monkeypatch) -> None:
    q, k, v = tokens(4, 4, 8, 8)
    monkeypatch.setenv(cpu_library.DISABLE, "1")
    assert available_kernels()["cpu"] == "switched off by the environment variable FNA_DISABLE_CPU_KERNEL"
    auto, named = Fractional(1.2), Fractional(1.2, kernel="cpu")
    assert choose(Call(auto, q, k, v, auto.visibility(q, k, None), 0.0)).name == "chunked"
    with pytest.raises(RuntimeError, match=r"'cpu' cannot run here: switched off .* one of chunked"):
        named(q, k, v)


def test_a_missing_library_is_said_and_auto_goes_on(monkeypatch, tmp_path) -> None:
    q, k, v = tokens(4, 4, 8, 8)
    monkeypatch.delenv(cpu_library.DISABLE, raising=False)
    monkeypatch.setattr(cpu_library, "PATH", tmp_path / "nothing.so")
    cpu_library.load.cache_clear()
    try:
        assert "was not built with this installation" in available_kernels()["cpu"]
        torch.testing.assert_close(Fractional(1.2)(q, k, v), Fractional(1.2, kernel="reference")(q, k, v))
    finally:
        cpu_library.load.cache_clear()


def test_it_refuses_with_a_reason() -> None:
    q, k, v = tokens(4, 4, 8, 8)
    kernel = KERNELS["cpu"]

    def refusal(attention: Attention, *tensors: Tensor) -> str:
        return kernel.refusal(Call(attention, *tensors, attention.visibility(q, k, None), 0.0)) or ""

    assert refusal(Fractional(1.2), q, k, v) == ""
    assert "got torch.float64" in refusal(Fractional(1.2), q.double(), k.double(), v.double())
    assert "density_power" in refusal(Fractional(1.2, density_power=0.5), q, k, v)
    assert "DotProduct() is not a function of a distance" in refusal(DotProduct(), q, k, v)
    assert "on meta" in refusal(Fractional(1.2), *(x.to("meta") for x in (q, k, v)))


def test_a_subclass_with_its_own_formula_is_left_to_the_others() -> None:
    class Taxicab(Fractional):
        def distance(self, q: Tensor, k: Tensor) -> Tensor:
            return torch.cdist(q, k, p=1.0)

    q, k, v = tokens(6, 6, 4, 4)
    attention = Taxicab(1.2)
    assert choose(Call(attention, q, k, v, attention.visibility(q, k, None), 0.0)).name not in ("cpu", "flex")
    torch.testing.assert_close(attention(q, k, v), attention.weights(q, k) @ v)


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


@needs_kernel
def test_denormals_are_flushed_inside_the_kernel_only() -> None:
    """Tiny gradients times tiny weights would cost 40 times as much; the caller's arithmetic stays as it was."""
    q, k, v = torch.randn(3, 2, 3, 40, 8, generator=torch.Generator().manual_seed(0)).unbind()
    v.requires_grad_()
    fractional_attention(q, k, v, kernel="cpu").backward(torch.full((2, 3, 40, 8), 1e-39))
    assert v.grad.abs().max() < 1e-37
    assert (torch.full((4,), 1e-30) * 1e-10).ne(0).all()
