"""Mathematical properties that hold for every attention and every kernel."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.autograd import gradcheck
from torch.testing import assert_close

from fna_lightning.attention import Attention, Uniform
from fna_lightning.attention.kernels import chunked

from helpers.attention_cases import ATTENTIONS, SHIFT_TOLERANCE, TOLERANCE, pairs, qkv, refusal, with_kernel
from helpers.attention_formula import formula_output

every_attention = pytest.mark.parametrize("attention", ATTENTIONS, ids=repr)
every_pair = pytest.mark.parametrize(("attention", "kernel"), pairs(), ids=repr)
every_float32_pair = pytest.mark.parametrize(("attention", "kernel"), pairs(torch.float32), ids=repr)
# density_power depends on all queries and keys
every_pair_without_density = pytest.mark.parametrize(
    ("attention", "kernel"), [pair for pair in pairs() if not pair[0].density_power], ids=repr
)

SHAPES = [(1, 1, 1, 1), (5, 7, 8, 8), (6, 3, 33, 4), (4, 4, 64, 5), (3, 2, 1, 3)]
MASKS = ["none", "padding", "causal", "both", "any", "empty row"]


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the chunked kernel divide these small problems into several blocks."""
    monkeypatch.setattr(chunked, "BLOCK_ELEMENTS", 64)


def mask_arguments(name: str, n: int, m: int, seed: int = 0) -> tuple[dict, torch.Tensor]:
    """Return the mask arguments of an attention, and the (2, 3, n, m) boolean matrix they stand for."""
    generator = torch.Generator().manual_seed(seed)
    allowed = torch.ones(2, 3, n, m, dtype=torch.bool)
    arguments: dict = {}
    if name in ("padding", "both"):
        lengths = torch.randint(1, m + 1, (2,), generator=generator)
        arguments["mask"] = (torch.arange(m) < lengths[:, None])[:, None, None, :]
    elif name == "any":
        arguments["mask"] = torch.rand(2, 3, n, m, generator=generator) < 0.6
    elif name == "empty row":
        arguments["mask"] = torch.rand(2, 1, n, m, generator=generator) < 0.8
        arguments["mask"][0, 0, n // 2] = False
    if "mask" in arguments:
        allowed = allowed & arguments["mask"]
    if name in ("causal", "both"):
        arguments["is_causal"] = True
        allowed = allowed & torch.ones(n, m, dtype=torch.bool).tril()
    return arguments, allowed


@every_pair
@pytest.mark.parametrize(("n", "m", "d", "d_v"), SHAPES)
@pytest.mark.parametrize("mask_name", MASKS)
def test_output_equals_the_formula(
    attention: Attention, kernel: str, n: int, m: int, d: int, d_v: int, mask_name: str
) -> None:
    if attention.density_power:
        m = n
    q, k, v = qkv(n, m, d, d_v)
    arguments, allowed = mask_arguments(mask_name, n, m)
    got = with_kernel(attention, kernel)(q, k, v, **arguments)
    want = formula_output(attention, q, k, v, allowed)
    assert_close(got, want, rtol=0, atol=TOLERANCE[torch.float64] * max(1.0, v.abs().max().item()))


@every_pair
@pytest.mark.parametrize("mask_name", MASKS)
def test_gradient_is_the_derivative(attention: Attention, kernel: str, mask_name: str) -> None:
    inputs = qkv(3, 3, 2, 3, batch=(2, 3))
    arguments, _ = mask_arguments(mask_name, 3, 3)
    other = with_kernel(attention, kernel)
    assert gradcheck(lambda q, k, v: other(q, k, v, **arguments), inputs)


@every_pair
def test_gradients_equal_the_reference(attention: Attention, kernel: str) -> None:
    inputs = qkv(9, 9, 5, 4)
    arguments, _ = mask_arguments("both", 9, 9)
    got = torch.autograd.grad(with_kernel(attention, kernel)(*inputs, **arguments).square().sum(), inputs)
    want = torch.autograd.grad(with_kernel(attention, "reference")(*inputs, **arguments).square().sum(), inputs)
    for name, a, b in zip(("dq", "dk", "dv"), got, want, strict=True):
        assert_close(a, b, rtol=1e-11, atol=1e-11, msg=lambda text, name=name: f"{name}: {text}")


@every_float32_pair
@pytest.mark.parametrize(("n", "m", "d", "d_v"), [(1, 1, 1, 1), (63, 65, 8, 8), (33, 100, 33, 7), (70, 70, 64, 64)])
@pytest.mark.parametrize("mask_name", MASKS)
def test_float32_is_close_to_float64(
    attention: Attention, kernel: str, n: int, m: int, d: int, d_v: int, mask_name: str
) -> None:
    if attention.density_power:
        m = n
    inputs = qkv(n, m, d, d_v, torch.float32)
    exact = [t.detach().double().requires_grad_() for t in inputs]
    arguments, _ = mask_arguments(mask_name, n, m)
    got, want = (
        with_kernel(attention, kernel)(*inputs, **arguments),
        with_kernel(attention, "reference")(*exact, **arguments),
    )
    upstream = torch.linspace(-1, 1, want.numel(), dtype=torch.float64).view_as(want)
    got_grads = torch.autograd.grad(got, inputs, upstream.float())
    want_grads = torch.autograd.grad(want, exact, upstream)
    for name, a, b in zip(("o", "dq", "dk", "dv"), (got, *got_grads), (want, *want_grads), strict=True):
        scale = max(1.0, b.abs().max().item())
        assert_close(
            a.double() / scale,
            b / scale,
            rtol=0,
            atol=TOLERANCE[torch.float32],
            msg=lambda text, name=name: f"{name}: {text}",
        )


@every_pair
def test_tied_tokens_have_finite_exact_gradients(attention: Attention, kernel: str) -> None:
    _, k, v = qkv(6, 6)
    tied = with_kernel(attention, kernel)
    got = torch.autograd.grad(tied(k, k, v).square().sum(), (k, v))
    # pairs of equal tokens, and tokens at the origin
    doubled = (
        torch.cat([k[..., :2, :], k[..., :2, :], torch.zeros_like(k[..., :2, :])], dim=-2).detach().requires_grad_()
    )
    same = torch.autograd.grad(tied(doubled, doubled, v).square().sum(), (doubled, v))
    assert all(grad.isfinite().all() for grad in (*got, *same))
    assert max(grad.abs().max() for grad in (*got, *same)) < 1e4
    want = torch.autograd.grad(with_kernel(attention, "reference")(k, k, v).square().sum(), (k, v))
    assert_close(got, want, rtol=1e-11, atol=1e-11)


@every_pair
def test_gradient_of_tied_tokens_is_the_derivative(attention: Attention, kernel: str) -> None:
    """The distance of a token to itself is 0 wherever it moves, so the derivative exists there, too."""
    _, k, v = qkv(4, 4, 3, 2, batch=(1, 2))
    tied = with_kernel(attention, kernel)
    assert gradcheck(lambda k, v: tied(k, k, v), (k, v))


@every_float32_pair
def test_a_row_without_keys_has_output_0_and_gradient_0(attention: Attention, kernel: str) -> None:
    q, k, v = qkv(6, 6, dtype=torch.float32)
    mask = torch.ones(2, 1, 6, 6, dtype=torch.bool)
    mask[0, 0, 4] = False
    mask[1] = False
    out = with_kernel(attention, kernel)(q, k, v, mask)
    grads = torch.autograd.grad(out.square().sum(), (q, k, v))
    assert out[0, :, 4].eq(0).all()
    assert out[1].eq(0).all()
    assert grads[0][0, :, 4].eq(0).all()
    assert all(grad[1].eq(0).all() for grad in grads)
    assert all(grad.isfinite().all() for grad in grads)
    assert attention.weights(q, k, mask)[1].eq(0).all()


@every_float32_pair
@pytest.mark.parametrize("tied", [True, False])
def test_attention_does_not_depend_on_the_origin(attention: Attention, kernel: str, tied: bool) -> None:
    if type(attention).__name__ in ("DotProduct", "Spherical"):
        pytest.skip("an angle or a dot product depends on the origin")
    q, k, v = qkv(64, 64, 64, dtype=torch.float32)
    q = k if tied else q
    computed = with_kernel(attention, kernel)
    shift = 10.0
    # rounded to what float32 can represent after the shift, so that only the rounding of the kernel is measured
    q, k = (q + shift) - shift, (k + shift) - shift
    assert_close(computed(q + shift, k + shift, v), computed(q, k, v), rtol=0, atol=SHIFT_TOLERANCE)


@every_float32_pair
def test_distance_of_a_token_to_itself_is_0(attention: Attention, kernel: str) -> None:
    """With a very small kappa every token attends only to itself, so the output is its own value."""
    if not hasattr(attention, "alpha") or attention.density_power:
        pytest.skip("this attention has no distance")
    sharp = type(attention)(attention.alpha, kappa=1e-3, intrinsic_dim=40.0, kernel=kernel)
    _, k, v = qkv(64, 64, 64, dtype=torch.float32)
    k = k.detach() + (0.0 if type(attention).__name__ == "Spherical" else 10.0)
    if refusal(sharp, kernel, k, k, v) is not None:
        pytest.skip(f"{kernel} does not compute this")
    assert_close(sharp(k, k, v), v, rtol=0, atol=1e-5)


@every_float32_pair
def test_huge_logits_give_no_nan(attention: Attention, kernel: str) -> None:
    q, k, v = (t.detach() for t in qkv(9, 9, dtype=torch.float32))
    q, k = (1e4 * q).requires_grad_(), (1e4 * k).requires_grad_()
    out = with_kernel(attention, kernel)(q, k, v)
    assert out.isfinite().all()
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(out.sum(), (q, k)))


@every_attention
@given(n=st.integers(1, 9), m=st.integers(1, 9), spread=st.floats(1e-3, 1e3), seed=st.integers(0, 2**31))
def test_weights_are_row_stochastic(attention: Attention, n: int, m: int, spread: float, seed: int) -> None:
    q, k, _ = qkv(n, n if attention.density_power else m, seed=seed)
    weights = attention.weights(spread * q, spread * k)
    assert (weights >= 0).all()
    assert_close(weights.sum(-1), torch.ones_like(weights[..., 0]))


@every_pair_without_density
@given(seed=st.integers(0, 2**31))
def test_masked_key_has_no_influence(attention: Attention, kernel: str, seed: int) -> None:
    q, k, v = qkv(5, 7, seed=seed)
    mask = torch.ones(5, 7, dtype=torch.bool)
    mask[:, 3] = False
    kept = [0, 1, 2, 4, 5, 6]
    computed = with_kernel(attention, kernel)
    assert_close(computed(q, k, v, mask), computed(q, k[..., kept, :], v[..., kept, :]))


@every_pair
@given(seed=st.integers(0, 2**31))
def test_permuting_the_tokens_permutes_the_output(attention: Attention, kernel: str, seed: int) -> None:
    q, k, v = qkv(6, 6, seed=seed)
    order = torch.randperm(6, generator=torch.Generator().manual_seed(seed))
    computed = with_kernel(attention, kernel)
    moved = computed(q[..., order, :], k[..., order, :], v[..., order, :])
    assert_close(moved, computed(q, k, v)[..., order, :])


@every_pair
def test_exclude_self_equals_a_masked_diagonal(attention: Attention, kernel: str) -> None:
    q, k, v = qkv(6, 6)
    without = with_kernel(attention, kernel)
    without.exclude_self = True
    diagonal = ~torch.eye(6, dtype=torch.bool)
    assert_close(without(q, k, v), with_kernel(attention, kernel)(q, k, v, diagonal))
    assert without(q[..., :1, :], k[..., :1, :], v[..., :1, :]).eq(0).all()


@every_pair_without_density
def test_queries_with_an_offset_equal_the_last_rows(attention: Attention, kernel: str) -> None:
    q, k, v = qkv(6, 6)
    computed = with_kernel(attention, kernel)
    whole = computed(q, k, v, is_causal=True)
    step = computed(q[..., 4:, :], k, v, is_causal=True, offset=4)
    assert_close(step, whole[..., 4:, :])


@every_float32_pair
def test_dropout_keeps_the_mean_and_follows_the_seed(attention: Attention, kernel: str) -> None:
    q, k, v = qkv(7, 7, dtype=torch.float32, batch=(200, 4))
    q, k, v = (t[:1, :1].expand(200, 4, -1, -1) for t in (q, k, v))
    computed = with_kernel(attention, kernel)
    undropped = computed(q, k, v)[0, 0]
    computed.dropout = 0.3
    computed.train()
    torch.manual_seed(1)
    once = computed(q, k, v)
    torch.manual_seed(1)
    assert_close(computed(q, k, v), once, rtol=0, atol=0)
    assert not torch.equal(once[0, 0], once[1, 0])
    # 800 samples: the standard error is below 0.05 of the size of a value
    assert_close(once.mean(dim=(0, 1)), undropped, rtol=0, atol=0.2)
    computed.eval()
    assert_close(computed(q, k, v)[0, 0], undropped)


@every_float32_pair
def test_dropout_is_the_same_in_backward(attention: Attention, kernel: str) -> None:
    """The output is linear in v with dropped weights W; the gradient must be W^T too."""
    q, k, v = qkv(40, 40, 8, 8, torch.float32, batch=(1, 1))
    computed = with_kernel(attention, kernel)
    computed.dropout = 0.5
    computed.train()
    torch.manual_seed(3)
    out = computed(q.detach(), k.detach(), v)
    upstream = torch.randn_like(out)
    (grad,) = torch.autograd.grad(out, v, upstream)
    assert_close((grad * v).sum(), (upstream * out).sum(), rtol=1e-4, atol=1e-3)


def test_uniform_attention_is_the_mean_of_the_values() -> None:
    q, k, v = qkv()
    assert_close(Uniform()(q, k, v), v.mean(-2, keepdim=True).expand(-1, -1, 5, -1))
