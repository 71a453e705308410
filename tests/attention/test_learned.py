"""Learned alpha and kappa per head: gradients of every kernel, and their ranges. Also: additive bias."""

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck
from torch.func import functional_call
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, Fractional, MultiheadAttention, Spherical
from fna_lightning.attention.kernels import chunked
from fna_lightning.attention.masks import masked_softmax
from fna_lightning.nn import Encoder, LayerConfig

from helpers.attention_cases import TOLERANCE, qkv, refusal

# class, initial alpha, learned values
CASES = [
    (Fractional, 1.2, ["alpha", "kappa"]),
    (Fractional, 1.7, ["alpha"]),
    (Fractional, 1.0, ["kappa"]),
    (Fractional, 2.0, ["kappa"]),
    (Spherical, 1.2, ["alpha", "kappa"]),
    (Spherical, 2.0, ["kappa"]),
]
KERNELS = ["reference", "chunked", "sdpa", "cpu"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the chunked kernel divide these small problems into several blocks."""
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 64)


def learned_attention(cls: type[Fractional], alpha: float, learn: list[str], kernel: str, heads: int = 3) -> Fractional:
    """Return an attention whose parameters differ between heads and from their initial values."""
    attention = cls(alpha, learn=learn, kernel=kernel).for_heads(heads)
    with torch.no_grad():
        for index, parameter in enumerate(attention.parameters()):
            parameter += torch.linspace(-1.0, 0.5, heads) * (1 + index)
    return attention


def output_per_head(attention: Fractional, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Return the output computed head by head, with an attention that has fixed alpha and kappa."""
    alphas, kappas = attention.exponent(q) - attention.dimension(q), attention.scale(q)
    heads = []
    for head in range(q.size(1)):
        alpha, kappa = (x[head].item() if isinstance(x, Tensor) else float(x) for x in (alphas, kappas))
        fixed = type(attention)(alpha, kappa, attention.dimension(q))
        kernel = fixed.log_kernel(q[:, head], k[:, head])
        heads.append(masked_softmax(kernel, allowed) @ v[:, head])
    return torch.stack(heads, dim=1)


@pytest.mark.parametrize(("cls", "alpha", "learn"), CASES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_every_head_uses_its_own_values(cls: type[Fractional], alpha: float, learn: list[str], kernel: str) -> None:
    dtype = torch.float32 if kernel == "cpu" else torch.float64
    q, k, v = qkv(9, 9, dtype=dtype)
    attention = learned_attention(cls, alpha, learn, kernel)
    if refusal(attention, kernel, q, k, v) is not None:
        pytest.skip(f"{kernel} does not compute this")
    allowed = torch.ones(9, 9, dtype=torch.bool).tril()
    assert_close(
        attention(q, k, v, is_causal=True), output_per_head(attention, q, k, v, allowed), rtol=0, atol=TOLERANCE[dtype]
    )


@pytest.mark.parametrize(("cls", "alpha", "learn"), CASES, ids=str)
@pytest.mark.parametrize("kernel", ["reference", "chunked", "sdpa"])
def test_gradient_of_the_parameters_is_the_derivative(
    cls: type[Fractional], alpha: float, learn: list[str], kernel: str
) -> None:
    q, k, v = qkv(4, 5, 3, 2, batch=(2, 3))
    attention = learned_attention(cls, alpha, learn, kernel).double()
    if refusal(attention, kernel, q, k, v) is not None:
        pytest.skip(f"{kernel} does not compute this")
    names = [name for name, _ in attention.named_parameters()]
    mask = torch.rand(2, 1, 4, 5, generator=torch.Generator().manual_seed(0)) < 0.7

    def run(q: Tensor, k: Tensor, v: Tensor, *values: Tensor) -> Tensor:
        return functional_call(attention, dict(zip(names, values, strict=True)), (q, k, v, mask))

    values = [parameter.detach().requires_grad_() for parameter in attention.parameters()]
    assert len(values) == len(learn)
    assert gradcheck(run, (q, k, v, *values))


@pytest.mark.parametrize(("cls", "alpha", "learn"), CASES, ids=str)
@pytest.mark.parametrize("kernel", KERNELS)
def test_float32_gradients_agree_with_float64(
    cls: type[Fractional], alpha: float, learn: list[str], kernel: str
) -> None:
    inputs = qkv(33, 40, 16, 8, torch.float32)
    attention = learned_attention(cls, alpha, learn, kernel)
    if refusal(attention, kernel, *inputs) is not None:
        pytest.skip(f"{kernel} does not compute this")
    exact = learned_attention(cls, alpha, learn, "reference").double()
    upstream = torch.randn(2, 3, 33, 8, generator=torch.Generator().manual_seed(1))
    got = torch.autograd.grad(attention(*inputs), (*inputs, *attention.parameters()), upstream)
    doubles = [x.detach().double().requires_grad_() for x in inputs]
    want = torch.autograd.grad(exact(*doubles), (*doubles, *exact.parameters()), upstream.double())
    for a, b in zip(got, want, strict=True):
        assert_close(a.double() / b.abs().max(), b / b.abs().max(), rtol=0, atol=TOLERANCE[torch.float32])


def test_parameters_get_float32_gradients_from_bfloat16_tokens() -> None:
    for alpha, learn in ((1.2, ["alpha", "kappa"]), (2.0, ["kappa"])):
        q, k, v = qkv(17, 17, dtype=torch.bfloat16)
        attention, exact = (learned_attention(Fractional, alpha, learn, kernel) for kernel in ("auto", "reference"))
        attention(q, k, v).sum().backward()
        exact.double()(q.double(), k.double(), v.double()).sum().backward()
        for a, b in zip(attention.parameters(), exact.parameters(), strict=True):
            assert a.grad.dtype == torch.float32
            assert_close(a.grad.double(), b.grad, rtol=0.05, atol=0.05)


def test_they_start_at_the_given_values_and_stay_in_range() -> None:
    q, k, v = qkv(6, 6)
    started = Fractional(1.2, learn=["alpha", "kappa"]).for_heads(3)
    assert_close(started.double()(q, k, v), Fractional(1.2)(q, k, v), rtol=0, atol=1e-6)
    for far in (-1e4, 1e4):
        with torch.no_grad():
            started.learned.alpha_logit.fill_(far)
        alpha = started.learned_values(q.float())["alpha"]
        assert (alpha >= 1.0).all()
        assert (alpha < 2.0).all()


def test_every_layer_has_its_own_parameters() -> None:
    attention = Fractional(learn="kappa")
    encoder = Encoder(attention, LayerConfig(dim=8, num_heads=4), depth=2)
    first, second = (layer.self_attn for layer in encoder.layers)
    assert first.attention is not second.attention
    assert first.learned_values()["kappa"].shape == (4,)
    encoder(torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(0))).square().sum().backward()
    assert all(layer.attention.learned.log_scale.grad.abs().min() > 0 for layer in (first, second))
    plain = Fractional()
    assert MultiheadAttention(8, 2, plain).attention is plain
    assert not list(plain.parameters())


def test_kappa_may_be_one_number_per_head() -> None:
    q, k, v = qkv(6, 6)
    for alpha in (1.2, 2.0):
        outputs = Fractional(alpha, kappa=[0.5, 1.0, 2.0])(q, k, v)
        for head, kappa in enumerate((0.5, 1.0, 2.0)):
            assert_close(outputs[:, head], Fractional(alpha, kappa)(q[:, head], k[:, head], v[:, head]))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"learn": ["beta"]}, "learn takes alpha and kappa, got 'beta'"),
        ({"alpha": 2.0, "learn": ["alpha"]}, "must start strictly between 1 and 2, got 2.0.*learn kappa alone"),
        ({"alpha": 1.0, "learn": ["alpha"]}, "must start strictly between 1 and 2, got 1.0"),
        ({"kappa": [1.0, -2.0]}, "kappa must be positive and finite, got -2.0"),
        ({"kappa": []}, "kappa must have one number for each head, got none"),
    ],
    ids=str,
)
def test_invalid_settings_raise(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fractional(**settings)


def test_another_number_of_heads_is_refused() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match="kappa has 2 numbers for 3 heads; give one for each head"):
        Fractional(kappa=[1.0, 2.0])(q, k, v)
    with pytest.raises(ValueError, match=r"parameters for 2 heads, the queries have 3; create it with for_heads\(3\)"):
        Fractional(learn=["kappa"], kernel="reference").for_heads(2)(q, k, v)


@pytest.mark.parametrize("attention", [Fractional(1.2), Fractional(2.0), DotProduct(), Fractional(1.2, learn="kappa")])
def test_a_bias_is_added_to_the_logits(attention: Fractional) -> None:
    q, k, v = qkv(5, 5, 3)
    bias = torch.randn(1, 3, 5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    want = (attention.log_kernel(q, k) + bias).softmax(-1) @ v
    for kernel in ("auto", "reference", "chunked"):
        attention.kernel = kernel
        assert_close(attention(q, k, v, bias=bias), want)
        assert gradcheck(lambda q, k, v, bias: attention(q, k, v, bias=bias, is_causal=True), (q, k, v, bias))
    attention.kernel = "auto"
    assert_close(attention.weights(q, k, bias=bias) @ v, want)


def test_a_bias_of_minus_infinity_masks_a_key() -> None:
    q, k, v = qkv(5, 7)
    masked = torch.rand(5, 7, generator=torch.Generator().manual_seed(0)) < 0.4
    masked[3] = True
    bias = torch.zeros(5, 7, dtype=torch.float64).masked_fill(masked, -torch.inf)
    out = Fractional()(q, k, v, bias=bias)
    assert_close(out, Fractional()(q, k, v, ~masked))
    assert out[..., 3, :].eq(0).all()
    with pytest.raises(
        TypeError, match=r"bias must be a floating-point tensor .*got torch\.bool; pass a boolean tensor as mask"
    ):
        Fractional()(q, k, v, bias=masked)
    with pytest.raises(ValueError, match=r"bias of shape \(7, 5\) does not broadcast to \(2, 3, 5, 7\)"):
        Fractional()(q, k, v, bias=bias.mT)
    out = Fractional(2.0, kernel="sdpa")(q, k, v, bias=bias)
    assert_close(out, Fractional(2.0, kernel="reference")(q, k, v, ~masked))
    assert out[..., 3, :].eq(0).all()
