"""fractional_attention and attention_weights as siblings of F.scaled_dot_product_attention."""

import inspect
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.testing import assert_close

from fna_lightning import attention_weights, fractional_attention
from fna_lightning.attention import DotProduct, Fractional, StudentT

from helpers.attention_cpu import needs_kernel

B, H, N, M, D = 2, 4, 5, 7, 8
ALLOWED = torch.rand(N, M, generator=torch.Generator().manual_seed(3)) > 0.4
SETTINGS: list[dict[str, Any]] = [{}, {"alpha": 2.0}, {"manifold": "sphere"}, {"alpha": 2.0, "manifold": "sphere"}]


def qkv(*, n: int = N, m: int = M, heads: int = H, dtype: torch.dtype = torch.float32, grad: bool = False) -> Any:
    random = torch.Generator().manual_seed(0)
    shapes = ((B, H, n, D), (B, heads, m, D), (B, heads, m, D))
    return [
        torch.randn(shape, generator=random, dtype=torch.float64).to(dtype).requires_grad_(grad) for shape in shapes
    ]


SDPA_CALLS: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "no mask": ((), {}),
    "a mask by position": ((ALLOWED,), {}),
    "a float mask by position": ((torch.zeros(N, M).masked_fill(~ALLOWED, -torch.inf),), {}),
    "a mask for each head": ((ALLOWED.expand(H, N, M),), {}),
    "a mask for each sequence": ((ALLOWED.expand(B, 1, N, M),), {}),
    "a padding mask": ((ALLOWED[:1].expand(B, 1, 1, M),), {}),
    "dropout by position": ((None, 0.5), {}),
    "causal by position": ((None, 0.0, True), {}),
    "mask and dropout": ((ALLOWED, 0.5, False), {}),
    "grouped heads": ((), {"enable_gqa": True}),
    "grouped heads and a mask": ((ALLOWED,), {"enable_gqa": True}),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", SDPA_CALLS)
def test_the_same_call_as_sdpa_has_the_same_shape_and_dtype(name: str, dtype: torch.dtype) -> None:
    args, options = SDPA_CALLS[name]
    args = tuple(x.to(dtype) if isinstance(x, Tensor) and x.is_floating_point() else x for x in args)
    q, k, v = qkv(heads=2 if "grouped" in name else H, dtype=dtype)
    want, out = (
        F.scaled_dot_product_attention(q, k, v, *args, **options),
        fractional_attention(q, k, v, *args, **options),
    )
    assert (out.shape, out.dtype) == (want.shape, want.dtype)


@pytest.mark.parametrize("shape", [(N, M), (M, N), (N, N)], ids=str)
@pytest.mark.parametrize("mask", [None, "boolean", "float"])
def test_the_same_keys_are_hidden_as_in_sdpa(shape: tuple[int, int], mask: str | None) -> None:
    """Causal masks are aligned at the top left; a float mask of 0 and -inf hides what a boolean mask hides."""
    n, m = shape
    q, k, _ = qkv(n=n, m=m)
    allowed = torch.ones(n, m, dtype=torch.bool) if mask is None else torch.ones(n, m, dtype=torch.bool).tril(2)
    attn_mask = allowed if mask != "float" else torch.zeros(n, m).masked_fill(~allowed, -torch.inf)
    causal = mask is None
    want = F.scaled_dot_product_attention(
        q, k, torch.eye(m).expand(B, H, m, m), None if causal else attn_mask, 0.0, causal
    )
    weights = attention_weights(q, k, None if causal else attn_mask, 0.0, causal)
    assert torch.equal(weights == 0, want == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16], ids=str)
def test_the_output_dtype_under_autocast_is_that_of_sdpa(dtype: torch.dtype) -> None:
    q, k, v = qkv(dtype=dtype)
    with torch.autocast("cpu", torch.bfloat16):
        out, want = fractional_attention(q, k, v), F.scaled_dot_product_attention(q, k, v)
    assert out.dtype == want.dtype
    assert_close(out.double(), fractional_attention(q, k, v).double(), rtol=1e-2, atol=1e-2)


def test_both_functions_have_the_same_arguments() -> None:
    function, weights = (list(inspect.signature(f).parameters) for f in (fractional_attention, attention_weights))
    assert function[:6] == ["q", "k", "v", "attn_mask", "dropout_p", "is_causal"]
    assert weights == [name for name in function if name not in ("v", "return_lse", "kernel")]
    with pytest.raises(TypeError, match="scale"):
        fractional_attention(*qkv(), scale=1.0)  # type: ignore[call-overload]


def test_weights_after_dropout() -> None:
    q, k, _ = qkv()
    weights, dropped = attention_weights(q, k), attention_weights(q, k, dropout_p=0.5)
    kept = dropped != 0
    assert 0 < kept.sum() < kept.numel()
    assert_close(dropped[kept], 2.0 * weights[kept])


@pytest.mark.parametrize("kernel", [pytest.param("cpu", marks=needs_kernel), "chunked", "reference"])
def test_decoding_with_cached_keys(kernel: str) -> None:
    """Query i of the last ones may attend to the keys up to its own position."""
    q, k, v = qkv(n=M)
    whole = fractional_attention(q, k, v, is_causal=True, kernel=kernel)
    last = fractional_attention(q[..., -2:, :], k, v, is_causal=True, offset=M - 2, kernel=kernel)
    assert_close(last, whole[..., -2:, :])
    weights = attention_weights(q, k, is_causal=True, exclude_self=True)
    assert_close(
        attention_weights(q[..., -2:, :], k, is_causal=True, exclude_self=True, offset=M - 2), weights[..., -2:, :]
    )


@pytest.mark.parametrize("kernel", [pytest.param("cpu", marks=needs_kernel), "chunked", "reference"])
@pytest.mark.parametrize("manifold", ["euclidean", "sphere"])
@pytest.mark.parametrize("shape", [(H,), (H, 1, 1), (1, H, 1, 1)], ids=str)
def test_each_head_has_its_own_alpha_and_kappa(shape: tuple[int, ...], manifold: str, kernel: str) -> None:
    q, k, v = qkv()
    alpha, kappa = torch.tensor([1.0, 1.3, 1.6, 1.9]), torch.tensor([0.5, 1.0, 2.0, 4.0])
    settings: Any = {"manifold": manifold, "intrinsic_dim": 3.0, "kernel": kernel}
    out = fractional_attention(q, k, v, alpha=alpha.view(shape), kappa=kappa.view(shape), **settings)
    for h, head in enumerate(out.unbind(1)):
        number = fractional_attention(
            q[:, h], k[:, h], v[:, h], alpha=alpha[h].item(), kappa=kappa[h].item(), **settings
        )
        assert_close(head, number)


@pytest.mark.parametrize("kernel", ["chunked", "reference", "auto"])
@pytest.mark.parametrize("settings", [{}, {"manifold": "sphere"}, {"intrinsic_dim": "auto"}], ids=str)
def test_gradients_of_alpha_and_kappa(settings: dict[str, Any], kernel: str) -> None:
    q, k, v = qkv(dtype=torch.float64)
    alpha = torch.tensor([1.1, 1.3, 1.6, 1.8], dtype=torch.float64, requires_grad=True)
    kappa = torch.tensor([0.5, 1.0, 2.0, 4.0], dtype=torch.float64).view(H, 1, 1).requires_grad_()

    def function(alpha: Tensor, kappa: Tensor) -> Tensor:
        return fractional_attention(q, k, v, alpha=alpha, kappa=kappa, kernel=kernel, **settings)

    assert torch.autograd.gradcheck(function, (alpha, kappa))


@needs_kernel
def test_the_c_kernel_has_the_gradients_of_the_reference() -> None:
    q, k, v = qkv()
    alpha = torch.tensor([1.1, 1.3, 1.6, 1.8], requires_grad=True)
    kappa = torch.tensor([0.5, 1.0, 2.0, 4.0], requires_grad=True)
    grads = [
        torch.autograd.grad(fractional_attention(q, k, v, alpha=a, kappa=kappa, kernel=name).square().sum(), inputs)
        for name in ("cpu", "reference")
        for a, inputs in ((alpha, (alpha, kappa)), (2.0, (kappa,)))
    ]
    for got, want in zip(grads[:2], grads[2:], strict=True):
        for a, b in zip(got, want, strict=True):
            assert a.abs().min() > 0
            assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_one_value_for_all_heads_and_a_number_for_the_other() -> None:
    q, k, v = qkv()
    kappa = torch.tensor(2.0, requires_grad=True)
    out = fractional_attention(q, k, v, alpha=1.5, kappa=kappa)
    assert_close(out, fractional_attention(q, k, v, alpha=1.5, kappa=2.0))
    out.sum().backward()
    assert kappa.grad is not None
    assert_close(fractional_attention(q, k, v, alpha=torch.tensor([1.5])), fractional_attention(q, k, v, alpha=1.5))
    assert_close(attention_weights(q, k, kappa=kappa), attention_weights(q, k, kappa=[2.0] * H))


def test_tensors_in_a_compiled_function() -> None:
    q, k, v = qkv()
    alpha = torch.tensor([1.1, 1.3, 1.6, 1.8], requires_grad=True)

    def function(alpha: Tensor) -> Tensor:
        return fractional_attention(q, k, v, ALLOWED, alpha=alpha, kappa=alpha * 2.0)

    want, out = function(alpha), torch.compile(function, backend="aot_eager", fullgraph=True)(alpha)
    assert_close(out, want)
    for got, expected in zip(*(torch.autograd.grad(x.square().sum(), alpha) for x in (out, want)), strict=True):
        assert_close(got, expected)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"alpha": torch.tensor([1.2, 1.3])}, ValueError, r"alpha must have one value .* 4 heads of q.*got \(2,\)"),
        ({"kappa": torch.ones(B, H, 1, 1)}, ValueError, r"as a tensor \(4,\) or \(4, 1, 1\), got \(2, 4, 1, 1\)"),
        ({"alpha": torch.full((H,), 2.0)}, ValueError, r"alpha as a tensor must lie in \[1, 2\).*number 2.0"),
        ({"kappa": torch.tensor([1.0, 1.0, -1.0, 1.0])}, ValueError, "kappa must be positive and finite, got"),
        ({"kappa": torch.ones(H, dtype=torch.int64)}, TypeError, "kappa must be a number or a floating-point tensor"),
        ({"kappa": torch.ones(H, device="meta")}, ValueError, "kappa is on meta and q is on cpu; move"),
    ],
    ids=str,
)
def test_invalid_tensors(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fractional_attention(*qkv(), **settings)


@pytest.mark.parametrize(
    ("attention", "setting", "way_out"),
    [
        (Fractional, "alpha", r"learn=\['alpha'\] .* call fractional_attention with the tensor"),
        (Fractional, "kappa", r"learn=\['kappa'\] .* call fractional_attention with the tensor"),
        (Fractional, "intrinsic_dim", r"\.item\(\)"),
        (StudentT, "nu", r"learn=\['nu'\]"),
        (DotProduct, "scale", r"learn=\['scale'\]"),
    ],
)
def test_a_module_refuses_a_tensor_rather_than_detaching_it(attention: Any, setting: str, way_out: str) -> None:
    with pytest.raises(TypeError, match=f"{setting} of a module must be a number, got a tensor; .*{way_out}"):
        attention(**{setting: torch.tensor(1.5, requires_grad=True)})


def merge(parts: list[tuple[Tensor, Tensor]]) -> Tensor:
    """Return the attention over all keys from the outputs and log-sum-exps over blocks of them."""
    outs, sums = (torch.stack(tensors) for tensors in zip(*parts, strict=True))
    return (outs * sums.softmax(dim=0)[..., None]).sum(dim=0)


@pytest.mark.parametrize("kernel", ["auto", "chunked", "reference"])
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_blocks_of_keys_can_be_merged(settings: dict[str, Any], kernel: str) -> None:
    q, k, v = qkv(dtype=torch.float64, grad=True)
    bias = torch.randn(H, N, M, dtype=torch.float64, requires_grad=True)
    options = {"kernel": kernel, **settings}

    def part(start: int, stop: int) -> tuple[Tensor, Tensor]:
        return fractional_attention(
            q, k[..., start:stop, :], v[..., start:stop, :], bias[..., start:stop], return_lse=True, **options
        )

    merged, whole = merge([part(0, 3), part(3, M)]), fractional_attention(q, k, v, bias, **options)
    assert_close(merged, whole)
    inputs = (q, k, v, bias)
    upstream = torch.randn_like(whole)
    for got, want in zip(*(torch.autograd.grad(out, inputs, upstream) for out in (merged, whole)), strict=True):
        assert_close(got, want)


@needs_kernel
def test_a_merge_in_float32_with_the_c_kernel_and_grouped_heads() -> None:
    q, k, v = qkv(heads=2, grad=True)
    out = merge(
        [
            fractional_attention(q, k[..., a:b, :], v[..., a:b, :], enable_gqa=True, return_lse=True, kernel="cpu")
            for a, b in ((0, 2), (2, M))
        ]
    )
    whole = fractional_attention(q, k, v, enable_gqa=True)
    assert_close(out, whole)
    for got, want in zip(*(torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (out, whole)), strict=True):
        assert_close(got, want, rtol=1e-4, atol=1e-5)


def test_the_log_sum_exp_is_that_of_the_logits() -> None:
    q, k, v = qkv(dtype=torch.float64)
    attention = Fractional(1.2)
    out, lse = fractional_attention(q, k, v, ALLOWED, return_lse=True)
    logits = attention.log_kernel(q, k).masked_fill(~ALLOWED, -torch.inf)
    assert lse.shape == (B, H, N)
    assert_close(lse, logits.logsumexp(dim=-1))
    assert_close(out, (logits - lse[..., None]).exp() @ v)
    _, nothing = fractional_attention(q, k, v, torch.zeros(N, M, dtype=torch.bool), return_lse=True)
    assert nothing.eq(-torch.inf).all()
    with torch.autocast("cpu", torch.bfloat16):
        out, lse = fractional_attention(*(x.float() for x in (q, k, v)), return_lse=True)
    assert (out.dtype, lse.dtype) == (torch.bfloat16, torch.float32)
