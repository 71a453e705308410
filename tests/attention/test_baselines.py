"""The strong baselines: dot product with qk-norm, learned scale and scalable softmax, and Student's t."""

import math

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, Fractional, KeyValueCache, MultiheadAttention, StudentT
from fna_lightning.attention.kernels import Call, choose, chunked

from helpers.attention_cases import TOLERANCE, qkv, refusal
from helpers.attention_cpu import needs_kernel

KERNELS = ["reference", "chunked", "sdpa", "cpu"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the chunked kernel divide these small problems into several blocks."""
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 64)


def cosine_weights(q: Tensor, k: Tensor, scale: Tensor, counts: Tensor) -> Tensor:
    """Return softmax(log n * scale * cos(q, k)) by its formula."""
    cosine = (q @ k.mT) / q.norm(dim=-1)[..., :, None] / k.norm(dim=-1)[..., None, :]
    return (counts.log() * scale[:, None, None] * cosine).softmax(dim=-1)


def test_qk_norm_is_the_cosine_and_ignores_the_length_of_the_tokens() -> None:
    q, k, _ = qkv()
    weights = DotProduct(qk_norm=True).weights(q, k)
    assert_close(weights, cosine_weights(q, k, torch.full((3,), 10.0), torch.tensor(math.e)))
    lengths = torch.rand(2, 3, 7, 1, generator=torch.Generator().manual_seed(0), dtype=torch.float64) + 0.1
    assert_close(DotProduct(qk_norm=True).weights(3.0 * q, lengths * k), weights)
    assert not torch.allclose(DotProduct().weights(3.0 * q, lengths * k), DotProduct().weights(q, k))


@pytest.mark.parametrize("qk_norm", [False, True])
def test_ssmax_is_the_plain_softmax_where_log_n_is_1(qk_norm: bool) -> None:
    q, k, v = qkv(5, 7)
    assert_close(
        DotProduct(0.3 / math.log(7), qk_norm=qk_norm, ssmax=True)(q, k, v), DotProduct(0.3, qk_norm=qk_norm)(q, k, v)
    )


@pytest.mark.parametrize("kernel", ["reference", "chunked", "sdpa"])
def test_ssmax_counts_the_keys_that_a_query_may_attend_to(kernel: str) -> None:
    q, k, v = qkv(6, 6)
    attention = DotProduct(0.4, ssmax=True, kernel=kernel)
    padding = torch.tensor([[True] * 6, [True] * 4 + [False] * 2])[:, None, None, :]
    for arguments, exclude_self in (
        ({}, False),
        ({}, True),
        ({"mask": padding}, False),
        ({"is_causal": True}, False),
        ({"is_causal": True}, True),
        ({"mask": padding, "is_causal": True}, True),
        ({"mask": torch.ones(1, dtype=torch.bool)}, False),
    ):
        attention.exclude_self = exclude_self
        allowed = torch.ones(2, 1, 6, 6, dtype=torch.bool) & arguments.get("mask", torch.tensor(True))
        if "is_causal" in arguments:
            allowed = allowed.tril()
        if exclude_self:
            allowed = allowed & ~torch.eye(6, dtype=torch.bool)
        counts = allowed.sum(dim=-1, keepdim=True)
        logits = (0.4 * counts.clamp(min=1).log() * (q @ k.mT)).masked_fill(~allowed, -torch.inf)
        want = logits.softmax(dim=-1).nan_to_num(0.0) @ v
        assert_close(attention(q, k, v, **arguments), want)
    attention.exclude_self = False
    rows = attention(q[..., 4:, :], k, v, is_causal=True, offset=4)
    assert_close(rows, attention(q, k, v, is_causal=True)[..., 4:, :])


@pytest.mark.parametrize("kernel", ["reference", "chunked", "sdpa"])
@pytest.mark.parametrize("settings", [{}, {"qk_norm": True}, {"qk_norm": True, "ssmax": True}], ids=str)
def test_gradient_of_the_learned_scale_is_the_derivative(settings: dict, kernel: str) -> None:
    q, k, v = qkv(4, 5, 3, 2, batch=(2, 3))
    attention = DotProduct(2.0, learn=["scale"], kernel=kernel, **settings).for_heads(3).double()
    with torch.no_grad():
        attention.learned.log_scale += torch.linspace(-0.5, 0.5, 3)
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.7

    def run(q: Tensor, k: Tensor, v: Tensor, log_scale: Tensor) -> Tensor:
        return functional_call(attention, {"learned.log_scale": log_scale}, (q, k, v, mask))

    assert gradcheck(run, (q, k, v, attention.learned.log_scale.detach().requires_grad_()))


def test_every_head_of_a_layer_learns_its_scale() -> None:
    layer = MultiheadAttention(12, 3, DotProduct(qk_norm=True, ssmax=True, learn=["scale"])).double()
    assert_close(layer.learned_values()["scale"], torch.full((3,), 10.0, dtype=torch.float64))
    with torch.no_grad():
        layer.attention.learned.log_scale.copy_(torch.tensor([-1.0, 0.0, 0.5]))
    scale = layer.learned_values()["scale"]
    assert_close(scale, 10.0 * torch.tensor([-1.0, 0.0, 0.5], dtype=torch.float64).exp())
    x, context = torch.randn(2, 2, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).unbind()
    q, k, v = layer.heads(x, context)
    out = cosine_weights(q, k, scale, torch.tensor(5.0)) @ v
    assert_close(layer(x, context), layer.out(out.transpose(1, 2).flatten(2)))


def test_a_cache_decodes_the_same_tokens() -> None:
    for attention in (DotProduct(qk_norm=True, ssmax=True, learn=["scale"]), StudentT(learn=["kappa"])):
        layer = MultiheadAttention(12, 3, attention).double()
        x = torch.randn(2, 5, 12, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        cache = KeyValueCache()
        steps = [layer(x[:, i : i + 1], is_causal=True, cache=cache) for i in range(5)]
        assert_close(torch.cat(steps, dim=1), layer(x, is_causal=True))


def test_half_precision_of_a_cosine_is_computed_in_float32() -> None:
    for dtype in (torch.bfloat16, torch.float16):
        q, k, v = (x.detach() for x in qkv(33, 40, 16, dtype=dtype))
        attention = DotProduct(qk_norm=True, ssmax=True, learn=["scale"])
        want = attention(q.double(), k.double(), v.double())
        assert_close(attention(300.0 * q, k, v).double(), want, rtol=0, atol=8 * torch.finfo(dtype).eps)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: DotProduct(scale=-1.0), "scale must be positive and finite, got -1.0"),
        (lambda: DotProduct(learn=["kappa"]), "learn takes scale, got 'kappa'"),
        (lambda: StudentT(0.0), "nu must be positive and finite, got 0.0"),
        (lambda: StudentT(math.inf), "nu must be positive and finite, got inf; Fractional"),
        (lambda: StudentT(kappa="wide"), "unknown kappa rule 'wide'"),
        (lambda: StudentT(learn=["alpha"]), "learn takes nu and kappa, got 'alpha'"),
    ],
)
def test_invalid_settings_raise(make, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("kernel", ["reference", "chunked", "cpu"])
def test_student_becomes_the_gaussian(kernel: str) -> None:
    dtype = torch.float32 if kernel == "cpu" else torch.float64
    q, k, v = qkv(9, 40, dtype=dtype)
    attention = StudentT(1e6, 1.5, kernel=kernel)
    if refusal(attention, kernel, q, k, v) is not None:
        pytest.skip(f"{kernel} does not run here")
    assert_close(attention(q, k, v), Fractional(2.0, 1.5 * math.sqrt(2))(q, k, v), rtol=0, atol=2e-4)
    far = StudentT(30.0, 1.5, kernel=kernel)
    assert not torch.allclose(far(q, k, v), attention(q, k, v), rtol=0, atol=2e-4)


def test_the_tail_of_student_is_that_of_fractional() -> None:
    """Far away both decay as distance^-(d_M + alpha) with alpha = nu."""
    q = torch.zeros(1, 1, 1, 2, dtype=torch.float64)
    k = torch.tensor([[100.0, 0.0], [0.0, 200.0]], dtype=torch.float64)[None, None]
    student, fractional = StudentT(1.2, 0.01).weights(q, k), Fractional(1.2, 1e-4).weights(q, k)
    assert_close(student, fractional, rtol=1e-4, atol=0)


@pytest.mark.parametrize("learn", [["kappa"], ["nu"], ["nu", "kappa"]], ids=str)
@pytest.mark.parametrize("kernel", ["reference", "chunked"])
def test_gradients_of_student_are_the_derivative(learn: list[str], kernel: str) -> None:
    q, k, v = qkv(4, 5, 3, 2, batch=(2, 3))
    attention = StudentT(1.5, 0.8, learn=learn, kernel=kernel).for_heads(3).double()
    names = [name for name, _ in attention.named_parameters()]
    values = [torch.linspace(-0.5, 0.7, 3, dtype=torch.float64).requires_grad_() for _ in names]
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.7
    assert len(names) == len(learn)
    assert gradcheck(
        lambda q, k, v, *values: functional_call(attention, dict(zip(names, values, strict=True)), (q, k, v, mask)),
        (q, k, v, *values),
    )


@needs_kernel
@pytest.mark.parametrize("d", [8, 40])
def test_gradients_of_student_on_the_c_kernel_agree_with_float64(d: int) -> None:
    inputs = qkv(33, 130, d, 8, torch.float32)
    attention = StudentT(1.5, learn=["nu", "kappa"], kernel="cpu").for_heads(3)
    exact = StudentT(1.5, learn=["nu", "kappa"], kernel="reference").for_heads(3).double()
    for module in (attention, exact):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter += torch.linspace(-0.5, 0.5, 3)
    upstream = torch.randn(2, 3, 33, 8, generator=torch.Generator().manual_seed(1))
    got = torch.autograd.grad(attention(*inputs), (*inputs, *attention.parameters()), upstream)
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    want = torch.autograd.grad(exact(*doubles), (*doubles, *exact.parameters()), upstream.double())
    for a, b in zip(got, want, strict=True):
        assert_close(a.double() / b.abs().max(), b / b.abs().max(), rtol=0, atol=TOLERANCE[torch.float32])


@needs_kernel
@pytest.mark.parametrize("keys", [16, 64, 256, 1024])
def test_the_shapes_of_the_field_task_use_the_c_kernel(keys: int) -> None:
    """Few queries and many keys of width 8, with a learned kappa, with and without padding."""
    q, k, v = qkv(32, keys, 8, dtype=torch.float32, batch=(2, 4))
    padding = (torch.arange(keys) < torch.tensor([keys, keys // 2])[:, None])[:, None, None, :]
    for attention in (
        Fractional(1.2, 0.1, 2.0, learn=["kappa"]),
        Fractional(1.2, 0.1, "auto", learn=["alpha", "kappa"]),
        Fractional(2.0, 0.5, learn=["kappa"]),
        StudentT(1.0, 0.5, learn=["kappa"]),
    ):
        attention = attention.for_heads(4)
        for mask in (None, padding):
            call = Call(attention, q, k, v, attention.mask_for(q, k, mask), 0.0)
            assert choose(call).name == "cpu"
