"""Grouped heads (``enable_gqa``) and float masks (a bias): every kernel computes the formula, with every gradient."""

from functools import partial
from itertools import product

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning import attention_weights, fractional_attention
from fna_lightning.attention import Attention, DotProduct, ExternalAttention, Fractional, Spherical
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels import chunked as chunked_module
from fna_lightning.attention.kernels.radial import radial_attention
from fna_lightning.introspection.layers import layer_call

from helpers.attention_cases import NAMED_ATTENTIONS, RADIAL_ATTENTIONS
from helpers.attention_cpu import GRADIENT_TOLERANCE, OUTPUT_TOLERANCE, needs_kernel
from helpers.bias_and_groups import BIAS_SHAPES, B, H, M, N, exact, random_bias, random_inputs, results

NAMES = ("output", "dq", "dk", "dv", "dbias", "first learned value", "second learned value")


def pairs() -> list[tuple[str, str]]:
    """Return every attention with every kernel that computes it here with grouped heads and a bias."""
    q, k, v = random_inputs(2)
    accepted = []
    for case, kernel in product(NAMED_ATTENTIONS, KERNELS):
        attention = NAMED_ATTENTIONS[case](kernel=kernel)
        mask = attention.mask_for(q, k, None, bias=random_bias((N, M)), enable_gqa=True)
        call = Call(attention, q, k, v, mask, 0.0, H // 2)
        if not (KERNELS[kernel].unavailable() or KERNELS[kernel].refusal(call)):
            accepted.append((case, kernel))
    return accepted


def assert_accurate(got: list[Tensor], want: list[Tensor], scale: float = 0.1) -> None:
    """Assert that output and gradients are accurate relative to the largest entry, or to ``scale`` if it is less."""
    for name, value, truth in zip(NAMES, got, want, strict=False):
        assert value.shape == truth.shape, name
        assert value.isfinite().all(), name
        error = (value.double() - truth).abs().max() / truth.abs().max().clamp_min(scale)
        tolerance = 2.0 * OUTPUT_TOLERANCE if name == "output" else GRADIENT_TOLERANCE
        assert error <= tolerance, f"{name} has an error of {error:.1e}"


def with_bias(attention: Attention, q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
    return attention(q, k, v, bias=bias, enable_gqa=True)


def both(attention: Attention, leaves: list[Tensor], mask: Tensor | None = None, **options: bool) -> None:
    """Assert that the attention and its formula in float64 agree, for q, k, v and perhaps a bias."""
    got = results(
        lambda q, k, v, *bias: attention(q, k, v, mask, bias=bias[0] if bias else None, enable_gqa=True, **options),
        leaves,
    )
    want = results(
        lambda q, k, v, *bias: exact(attention, q, k, v, bias[0] if bias else None, mask, **options),
        [x.double() for x in leaves],
    )
    assert_accurate(got, want)


@pytest.mark.parametrize(("case", "kernel"), pairs())
def test_grouped_heads_and_bias_equal_the_formula_in_float64(case, kernel) -> None:
    attention = NAMED_ATTENTIONS[case](kernel=kernel)
    padding = torch.ones(B, 1, 1, M, dtype=torch.bool)
    padding[0, ..., 60:] = False
    padding[1, ..., :100] = False
    for groups, shape in ((H, "heads"), (3, "full"), (2, "matrix"), (1, "batch"), (3, "keys")):
        q, k, v = random_inputs(groups)
        both(attention, [q, k, v])
        both(attention, [q, k, v, random_bias(BIAS_SHAPES[shape])], padding)
        both(attention, [q, k[:, :, :N], v[:, :, :N], random_bias((1, H, N, N))], is_causal=True)


@needs_kernel
@pytest.mark.parametrize("groups", [H, 2, 1])
@pytest.mark.parametrize("shape", BIAS_SHAPES)
def test_the_gradient_of_a_bias_has_its_shape_for_any_number_of_threads(shape, groups, monkeypatch) -> None:
    monkeypatch.setattr("fna_lightning.attention.kernels.cpu.library.WORTH_A_THREAD", 100)
    before = torch.get_num_threads()
    try:
        for threads, case in ((1, "power law"), (4, "power law"), (4, "Gaussian"), (4, "sphere")):
            torch.set_num_threads(threads)
            attention = RADIAL_ATTENTIONS[case](kernel="cpu")
            leaves = [*random_inputs(groups, n=150), random_bias(BIAS_SHAPES[shape])]
            if shape not in ("keys", "keys of heads", "keys of batch", "number"):
                leaves[3] = random_bias(tuple(150 if size == N else size for size in BIAS_SHAPES[shape]))
            both(attention, leaves)
            repeated = [results(partial(with_bias, attention), leaves) for _ in range(2)]
            assert all(torch.equal(first, second) for first, second in zip(*repeated, strict=True))
    finally:
        torch.set_num_threads(before)


@needs_kernel
@pytest.mark.parametrize("case", RADIAL_ATTENTIONS)
def test_a_bias_of_any_size_is_accurate(case) -> None:
    """The key with the largest logit need not be the nearest, and its bias may be large, constant or a mask."""
    attention = RADIAL_ATTENTIONS[case](kernel="cpu")
    tokens = list(random_inputs(3, d=8))
    position = torch.arange(N)[:, None] - torch.arange(M)
    hidden = torch.zeros(B, H, N, M)
    hidden[..., 40:] = torch.finfo(torch.float32).min
    some = random_bias((B, 1, N, M))
    some[torch.rand(some.shape, generator=torch.Generator().manual_seed(3)) < 0.3] = -torch.inf
    some[0, 0, 7] = -torch.inf
    for bias in (random_bias((H, N, M), 30.0), -0.5 * position.abs(), hidden, some, random_bias((N, M)) + 300.0):
        got = results(lambda q, k, v, bias=bias: attention(q, k, v, bias=bias, enable_gqa=True), tokens)
        want = results(
            lambda q, k, v, bias=bias: exact(attention, q, k, v, bias.double()), [x.double() for x in tokens]
        )
        largest = bias[bias.isfinite() & (bias > -1e30)].abs().max().item()
        # The logits are rounded to float32.
        for name, value, truth in zip(NAMES, got, want, strict=False):
            assert value.isfinite().all(), name
            assert (value - truth).abs().max() <= max(2e-5, 3e-7 * largest) * truth.abs().max().clamp_min(1.0), name
    out = attention(*tokens, bias=some, enable_gqa=True)
    assert out[0, :, 7].eq(0.0).all()


@needs_kernel
def test_a_bias_that_is_not_finite() -> None:
    q, k, v = random_inputs(2)
    allowed = torch.ones(N, M, dtype=torch.bool)
    allowed[3, 5] = False
    bias = torch.zeros(N, M)
    bias[3, 5], bias[4, 6], bias[5, 7] = torch.nan, torch.nan, torch.inf
    for kernel in ("cpu", "reference"):
        out = Fractional(1.2, kernel=kernel)(q, k, v, allowed, bias=bias, enable_gqa=True)
        assert out[..., [4, 5], :].isnan().all()
        assert out[..., 3, :].isfinite().all(), "the key with this bias is masked out"
        assert out[..., 6:, :].isfinite().all()


@needs_kernel
@pytest.mark.parametrize("make", [Fractional, Spherical])
def test_learned_values_with_grouped_heads_and_a_bias(make) -> None:
    attention = make(1.3, 2.0, learn=("alpha", "kappa"), kernel="cpu").for_heads(H)
    with torch.no_grad():
        for parameter in attention.parameters():
            parameter.add_(torch.linspace(-0.5, 0.5, H))
    tokens = [*random_inputs(2), random_bias((H, N, M))]
    grads = []
    for dtype in (torch.float32, torch.float64):
        attention.kernel = "cpu" if dtype is torch.float32 else "reference"
        attention.to(dtype)
        out = attention(*(x.to(dtype) for x in tokens[:3]), bias=tokens[3].to(dtype), enable_gqa=True)
        upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
        grads.append(torch.autograd.grad(out, list(attention.parameters()), upstream))
    for got, want in zip(*grads, strict=True):
        assert (got.double() - want).abs().max() <= 3e-5 * want.abs().max()


@needs_kernel
def test_dropout_with_grouped_heads_and_a_bias() -> None:
    """The pattern is that of the ungrouped call, in the backward pass too."""
    q, k, v = random_inputs(2)
    bias = random_bias((H, N, M))
    attention = Fractional(1.2, kernel="cpu", dropout=0.4).train()
    both_results = []
    for group in (1, H // 2):
        tokens = [q, *(x.repeat_interleave(H // 2 // group, dim=1) for x in (k, v)), bias]
        torch.manual_seed(3)
        both_results.append(results(partial(with_bias, attention), tokens))
    ungrouped, grouped = both_results
    for index in (2, 3):
        ungrouped[index] = ungrouped[index].unflatten(1, (2, H // 2)).sum(dim=2)
    for got, want in zip(grouped, ungrouped, strict=True):
        assert_close(got, want, rtol=1e-5, atol=1e-5)


@needs_kernel
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision(dtype) -> None:
    q, k, v = random_inputs(2, dtype=dtype)
    for bias in (random_bias((H, N, M)), random_bias((H, N, M)).to(dtype)):
        out = fractional_attention(q, k, v, attn_mask=bias, enable_gqa=True, kernel="cpu")
        want = exact(Fractional(1.2), q.double(), k.double(), v.double(), bias.double())
        assert out.dtype == dtype
        assert_close(out.double(), want, rtol=torch.finfo(dtype).eps, atol=1e-5)


def test_the_float_mask_and_grouped_heads_are_those_of_pytorch() -> None:
    q, k, v = random_inputs(2, d_v=20, dtype=torch.float64)
    bias = random_bias((B, 1, N, M)).double()
    bias[:, :, :, 90:] = -torch.inf
    want = F.scaled_dot_product_attention(q, k, v, attn_mask=bias, enable_gqa=True)
    for kernel in ("sdpa", "chunked", "reference"):
        assert_close(DotProduct(kernel=kernel)(q, k, v, bias, enable_gqa=True), want)
    # The bias may be passed as a mask and in addition to it.
    half = bias.masked_fill(bias == -torch.inf, 0.0) / 2
    mask = bias > -torch.inf
    assert_close(DotProduct()(q, k, v, mask, bias=2 * half, enable_gqa=True), want)
    assert_close(DotProduct()(q, k, v, half + bias.masked_fill(mask, 0.0), bias=half, enable_gqa=True), want)


@pytest.mark.parametrize("manifold", ["euclidean", "sphere"])
@pytest.mark.parametrize("alpha", [1.2, 2.0])
def test_the_functions_agree_with_each_other(alpha, manifold) -> None:
    q, k, v = random_inputs(3)
    for attn_mask, dim in ((None, None), (random_bias((N, M)), "auto"), (random_bias((1, M)), None)):
        settings = {"alpha": alpha, "manifold": manifold, "attn_mask": attn_mask, "intrinsic_dim": dim}
        weights = attention_weights(q, k, enable_gqa=True, **settings)
        assert weights.shape == (B, H, N, M)
        assert_close(weights.sum(dim=-1), torch.ones(B, H, N))
        out = fractional_attention(q, k, v, enable_gqa=True, **settings)
        assert_close(out, weights @ v.repeat_interleave(2, dim=1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kernel", ["auto", "sdpa", "chunked", "reference"])
def test_any_number_of_leading_axes(kernel) -> None:
    q, k, v = random_inputs(2)
    attention, bias = Fractional(2.0, kernel=kernel), random_bias((H, N, M))
    want = attention(q, k, v, bias=bias, enable_gqa=True)
    options = {"bias": bias, "enable_gqa": True}
    assert_close(attention(q[0], k[0], v[0], **options), want[0])
    assert_close(attention(q[None], k[None], v[None], **options), want[None])
    assert_close(attention(q, k[:1], v[:1], **options)[0], want[0])
    more = torch.stack([bias, 2 * bias])[:, None]
    repeated = attention(q.expand(2, *q.shape), k, v, bias=more, enable_gqa=True)
    assert_close(repeated[0], want)
    assert_close(repeated[1], attention(q, k, v, bias=2 * bias, enable_gqa=True))
    batches = random_bias((B, 1, N, M))
    repeated = attention(q.expand(2, *q.shape), k, v, bias=batches, enable_gqa=True)
    assert_close(repeated[1], attention(q, k, v, bias=batches, enable_gqa=True))


def test_chunked_sums_the_gradients_of_all_blocks(monkeypatch) -> None:
    monkeypatch.setattr(chunked_module, "BLOCK_ELEMENTS", B * H * M * 7)
    attention = Fractional(1.2, kernel="chunked")
    for shape in ("heads", "matrix", "keys", "queries", "number"):
        both(attention, [*random_inputs(2), random_bias(BIAS_SHAPES[shape])])


def test_sdpa_does_not_round_a_bias() -> None:
    q, k, v = random_inputs(H, dtype=torch.bfloat16)
    with pytest.raises(RuntimeError, match=r"'sdpa' cannot run here: it would round a bias of torch.float32 to torch"):
        DotProduct(kernel="sdpa")(q, k, v, bias=random_bias((N, M)))
    DotProduct(kernel="sdpa")(q, k, v, bias=random_bias((N, M)).bfloat16())


def test_heads_that_do_not_form_groups() -> None:
    q, k, v = random_inputs(4)
    with pytest.raises(ValueError, match=r"query heads \(6\) must be a multiple of the number of key heads \(4\)"):
        fractional_attention(q, k, v, enable_gqa=True)
    with pytest.raises(ValueError, match=r"query heads \(6\) must be a multiple of the number of key heads \(4\)"):
        attention_weights(q, k, enable_gqa=True)
    k, v = (x[:, :3] for x in (k, v))
    with pytest.raises(ValueError, match=r"do not broadcast: \(2, 6\) and \(2, 3\); pass enable_gqa=True"):
        fractional_attention(q, k, v)
    with pytest.raises(ValueError, match=r"k and v must have the same number of heads .* v is \(2, 6, 110, 9\)"):
        fractional_attention(q, k, v.repeat_interleave(2, dim=1), enable_gqa=True)
    with pytest.raises(ValueError, match=r"enable_gqa needs a heads axis.*got q of shape \(51, 20\)"):
        fractional_attention(q[0, 0], k[0, 0], v[0, 0], enable_gqa=True)


@needs_kernel
def test_compile_and_opcheck() -> None:
    q, k, v = (x.requires_grad_() for x in random_inputs(2))
    bias = random_bias((1, H, N, M)).requires_grad_()

    def loss(q: Tensor, k: Tensor, v: Tensor, bias: Tensor) -> Tensor:
        return fractional_attention(q, k, v, attn_mask=bias, enable_gqa=True).square().sum()

    results_of = []
    for function in (loss, torch.compile(loss, fullgraph=True, backend="aot_eager")):
        out = function(q, k, v, bias)
        results_of.append([out, *torch.autograd.grad(out, (q, k, v, bias))])
    for got, want in zip(*results_of, strict=True):
        assert_close(got, want)
    kappa, exponent = torch.full((H,), 5.0), torch.full((H,), 9.2)
    arguments = (q, k, v, None, bias, kappa, exponent, None, 0, False, False, False, 0, 0.0, "cpu")
    torch.library.opcheck(
        torch.ops.fna_lightning.radial_attention.default,
        arguments,
        test_utils=("test_schema", "test_faketensor", "test_autograd_registration", "test_aot_dispatch_static"),
    )
    out, stats = (x.detach() for x in torch.ops.fna_lightning.radial_attention(*arguments))
    tensors = [x.detach() for x in (q, k, v)], bias.detach()
    for learn_bias in (False, True):
        torch.library.opcheck(
            torch.ops.fna_lightning.radial_attention_backward.default,
            (
                out,
                *tensors[0],
                None,
                tensors[1],
                kappa,
                exponent,
                None,
                out,
                stats,
                *arguments[8:],
                True,
                True,
                learn_bias,
            ),
            test_utils=("test_schema", "test_faketensor"),
        )
    assert_close(radial_attention(*arguments), out)


@needs_kernel
def test_grouped_keys_are_not_copied() -> None:
    """The memory of a decoding step does not grow by a copy of its cache for each query head."""
    k = torch.randn(1, 1, 20_000, 64)
    q = torch.randn(1, 32, 1, 64)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True) as profile:
        fractional_attention(q, k, k, enable_gqa=True, kernel="cpu")
    allocated = sum(max(0, event.self_cpu_memory_usage) for event in profile.key_averages())
    assert allocated < k.nbytes


def test_hooks_see_repeated_heads() -> None:
    q, k, v = random_inputs(2)
    layer = ExternalAttention(Fractional(1.2), H, 20)
    call = layer_call(layer, (q, k, v), {"enable_gqa": True})
    assert_close(call.weights() @ call.v, layer(q, k, v, enable_gqa=True), rtol=1e-4, atol=1e-5)
