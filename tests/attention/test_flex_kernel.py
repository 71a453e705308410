"""The FlexAttention kernel on the CPU, uncompiled, compared with the float64 reference; no GPU is needed."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.attention import flex_attention as torch_flex

from fna_lightning.attention import Attention, DotProduct, Fractional
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels.base import Radial
from fna_lightning.attention.kernels.flex import attend, flex_by_distance, kernel_options

from helpers.attention_cases import RADIAL_ATTENTIONS

NAMES = ("power law", "power law, vision", "Gaussian", "sphere")
# The squared norms go through a matrix product, so the error is relative to the tokens, not to their distance.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def tokens(n: int, m: int, d: int, d_v: int, scale: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, length, d, generator=generator) * scale for length in (n, m))
    return q, k, torch.randn(2, 3, m, d_v, generator=generator)


def flex(
    attention: Attention,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    *,
    bias: Tensor | None = None,
    offset: int = 0,
    function: Callable[..., Tensor] = flex_by_distance,
) -> Tensor:
    attention_mask = attention.mask_for(q, k, mask, is_causal=causal, bias=bias, offset=offset)
    return attend(Call(attention, q, k, v, attention_mask, 0.0), function)


def reference(
    case: str,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    causal: bool = False,
    exclude_self: bool = False,
) -> Tensor:
    attention = RADIAL_ATTENTIONS[case](kernel="reference", exclude_self=exclude_self)
    return attention(q.double(), k.double(), v.double(), mask, is_causal=causal)


def gap(got: Tensor, want: Tensor) -> float:
    return ((got.double() - want).abs().max() / want.abs().max()).item()


# The Gaussian at scale 10 has logits of several hundred, for which float32 is not accurate enough.
CASES = [(case, scale) for case in NAMES for scale in (0.1, 1.0, 10.0) if (case, scale) != ("Gaussian", 10.0)]


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize(("case", "scale"), CASES)
@pytest.mark.parametrize(("n", "m", "d", "d_v"), [(33, 65, 8, 5), (64, 48, 33, 16)])
def test_forward_equals_the_float64_reference(case, n, m, d, d_v, scale, dtype) -> None:
    q, k, v = (x.to(dtype) for x in tokens(n, m, d, d_v, scale))
    out = flex(RADIAL_ATTENTIONS[case](), q, k, v)
    assert out.dtype == dtype
    assert gap(out, reference(case, q, k, v)) < TOLERANCE[dtype]


@pytest.mark.parametrize("case", NAMES)
@pytest.mark.parametrize("mask_name", ["padding", "causal", "general", "exclude self"])
def test_masks(case, mask_name) -> None:
    q, k, v = tokens(40, 40, 8, 8, 1.0)
    mask = None
    if mask_name == "padding":
        mask = (torch.arange(40) < torch.tensor([40, 17])[:, None])[:, None, None, :]
    if mask_name == "general":
        mask = torch.rand(2, 1, 40, 40, generator=torch.Generator().manual_seed(3)) < 0.5
        mask[0, 0, 4] = False
    causal, exclude_self = mask_name == "causal", mask_name == "exclude self"
    out = flex(RADIAL_ATTENTIONS[case](exclude_self=exclude_self), q, k, v, mask, causal)
    want = reference(case, q, k, v, mask, causal, exclude_self)
    assert gap(out, want) < TOLERANCE[torch.float32]
    if mask_name == "general":
        assert out[0, :, 4].eq(0).all()


def test_distance_of_a_token_to_itself_is_0_far_from_the_origin() -> None:
    q, _, v = tokens(64, 64, 32, 8, 1.0)
    shifted = q + 100.0
    narrow = Fractional(1.2, 1e-3)
    # with such a small kappa only the token itself has a weight
    assert gap(flex(narrow, shifted, shifted, v), v.double()) < TOLERANCE[torch.float32]


def test_any_number_of_leading_axes() -> None:
    q, k, v = tokens(9, 7, 8, 8, 1.0)
    attention = Fractional(1.2, intrinsic_dim=8)
    want = flex(attention, q, k, v)
    torch.testing.assert_close(flex(attention, q[0], k[0], v[0]), want[0])
    torch.testing.assert_close(flex(attention, q[0, 0], k[0, 0], v[0, 0]), want[0, 0])


@pytest.fixture
def cpu_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let FlexAttention differentiate on the CPU: its uncompiled form can, only the check of the inputs refuses it."""
    if not hasattr(torch_flex, "_validate_device"):
        pytest.skip("this version of PyTorch has no such check to replace")
    monkeypatch.setattr(torch_flex, "_validate_device", lambda *_: None)


GRADIENT_CASES: dict[str, Callable[[], Attention]] = {
    **{name: RADIAL_ATTENTIONS[name] for name in (*NAMES, "Gaussian on the sphere", "Student")},
    "learned kappa": lambda: Fractional(1.2, learn=["kappa"]).for_heads(3),
    "Gaussian, learned kappa": lambda: Fractional(2.0, learn=["kappa"]).for_heads(3),
}


@pytest.mark.usefixtures("cpu_gradients")
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", GRADIENT_CASES)
def test_gradients_equal_the_float64_reference(case: str, dtype: torch.dtype) -> None:
    q, k, v = (x.to(dtype).requires_grad_() for x in tokens(20, 24, 16, 16, 1.0))
    mask = (torch.arange(24) < torch.tensor([24, 11])[:, None])[:, None, None, :]
    attention = GRADIENT_CASES[case]()
    out = flex(attention, q, k, v, mask)
    upstream = torch.randn(out.shape, generator=torch.Generator().manual_seed(5)).to(dtype)
    grads = torch.autograd.grad(out, [q, k, v, *attention.parameters()], upstream)
    exact = copy.deepcopy(attention).double()
    exact.kernel = "reference"
    wide = [x.detach().double().requires_grad_() for x in (q, k, v)]
    wanted = torch.autograd.grad(exact(*wide, mask), [*wide, *exact.parameters()], upstream.double())
    for grad, want in zip(grads, wanted, strict=True):
        assert gap(grad, want) < TOLERANCE[dtype]


@pytest.mark.usefixtures("cpu_gradients")
def test_gradient_of_tied_tokens_is_finite_and_that_of_masked_tokens_0() -> None:
    q, _, v = tokens(12, 12, 16, 16, 1.0)
    q = (q + 50.0).requires_grad_()
    mask = torch.ones(2, 1, 12, 12, dtype=torch.bool)
    mask[0, 0, 4] = False
    out = flex(Fractional(1.2, 1e-3), q, q.detach().clone(), v, mask)
    (grad,) = torch.autograd.grad(out.sum(), q)
    assert grad.isfinite().all()
    assert grad[0, :, 4].eq(0).all()


def test_bias() -> None:
    q, k, v = tokens(20, 24, 16, 16, 1.0)
    attention = Fractional(1.2)
    generator = torch.Generator().manual_seed(2)
    exact = Fractional(1.2, kernel="reference")
    for shape in ((20, 24), (3, 20, 24), (2, 1, 1, 24), (2, 3, 20, 24), (1, 1)):
        bias = torch.randn(shape, generator=generator)
        want = exact(q.double(), k.double(), v.double(), bias=bias.double())
        assert gap(flex(attention, q, k, v, bias=bias), want) < TOLERANCE[torch.float32]


@pytest.mark.usefixtures("cpu_gradients")
@pytest.mark.parametrize("learn", [[], ["kappa"]])
def test_grouped_heads(learn: list[str]) -> None:
    generator = torch.Generator().manual_seed(4)
    q = torch.randn(2, 6, 20, 16, generator=generator, requires_grad=True)
    k, v = (torch.randn(2, 2, 24, 16, generator=generator, requires_grad=True) for _ in range(2))
    attention = Fractional(1.2, learn=learn).for_heads(6)
    mask = attention.mask_for(q[:, :2], k, None)
    out = attend(Call(attention, q, k, v, mask, 0.0), flex_by_distance)
    repeated = [x.repeat_interleave(3, dim=1) for x in (k, v)]
    want = flex(attention, q, *repeated)
    torch.testing.assert_close(out, want)
    inputs = [q, k, v, *attention.parameters()]
    for grad, wanted in zip(
        torch.autograd.grad(out.square().sum(), inputs), torch.autograd.grad(want.square().sum(), inputs), strict=True
    ):
        assert gap(grad, wanted.double()) < TOLERANCE[torch.float32]


def test_products_are_ieee_at_every_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    options: list[dict[str, Any]] = []

    def record(*_: Any, **settings: Any) -> Tensor:
        options.append(settings["kernel_options"])
        return q

    monkeypatch.setattr("fna_lightning.attention.kernels.flex.flex_attention", record)
    q, k, v = tokens(4, 4, 16, 16, 1.0)
    flex(Fractional(1.2), q, k, v)
    assert options == [{"FLOAT32_PRECISION": "'ieee'"}]


def test_blocks_of_wide_heads_are_small() -> None:
    for width, element_size in ((128, 4), (130, 4), (256, 2), (256, 4)):
        options = kernel_options(width, element_size)
        rows = (1 << (width - 1).bit_length()) * element_size
        for prefix, suffix in (("fwd", ""), ("bwd", "1"), ("bwd", "2")):
            blocks = options[f"{prefix}_BLOCK_M{suffix}"] + options[f"{prefix}_BLOCK_N{suffix}"]
            # one tile of queries and one each of keys and values, at most 64 KB
            assert (blocks + min(blocks, options[f"{prefix}_BLOCK_N{suffix}"])) * rows <= 1 << 16
    assert "fwd_BLOCK_M" not in kernel_options(64, 4)


def test_new_lengths_are_not_compiled_again() -> None:
    """Each kind of mask is compiled for one block and several blocks of keys, and for a single query."""
    compilations: list[str] = []

    def count(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        compilations.append(str(graph))
        return graph.forward

    function = torch.compile(flex_by_distance, dynamic=True, backend=count)

    def run(batch: int, n: int, m: int, causal: bool, kappa: float = 1.0) -> None:
        q, k, v = (torch.randn(batch, 2, length, 16) for length in (n, m, m))
        mask = None if causal else (torch.arange(m) < torch.arange(1, batch + 1)[:, None])[:, None, None, :]
        flex(Fractional(1.2, kappa), q, k, v, mask, causal, offset=m - n if causal else 0, function=function)

    for causal in (False, True):
        run(4, 30, 31, causal)
        run(4, 150, 151, causal)
        run(4, 1, 7, causal)
    first = len(compilations)
    assert first <= 6
    for causal in (False, True):
        for length in (9, 47, 100):
            run(3, length, length + 2, causal, kappa=0.1 * length)
            run(5, 130 + length, 140 + length, causal)
            run(5, 1, length, causal)
    assert len(compilations) == first


def test_a_refusal_names_its_reason() -> None:
    kernel = KERNELS["flex"]
    if not torch.cuda.is_available():
        assert "needs a CUDA device" in (kernel.unavailable() or "")
    q, k, v = tokens(4, 4, 8, 8, 1.0)

    def refusal(attention: Attention, dropout: float = 0.0, device: str = "cuda", **changes: Any) -> str | None:
        call = Call(attention, _OnDevice(q, device), k, v, attention.mask_for(q, k, None), dropout)
        return kernel.refusal(replace(call, **changes))

    def learned_refusal(sphere: bool, *, kappa: bool = False, alpha: bool = False) -> str | None:
        call = Call(Fractional(), _OnDevice(q, "cuda"), k, v, Fractional().mask_for(q, k, None), 0.0)
        values = (torch.ones(3, requires_grad=learned) for learned in (kappa, alpha))
        call._radial.append(Radial("power", sphere, *values))
        return kernel.refusal(call)

    assert "the tensors are on cpu" in (refusal(Fractional(), device="cpu") or "")
    assert refusal(Fractional()) is None
    assert "no dropout, got 0.1" in (refusal(Fractional(), 0.1) or "")
    assert "density_power" in (refusal(Fractional(density_power=1.0)) or "")
    assert "not a function of a distance" in (refusal(DotProduct()) or "")
    assert learned_refusal(sphere=False, kappa=True) is None
    assert "no gradient for alpha" in (learned_refusal(sphere=False, alpha=True) or "")
    assert "no gradient for kappa on the sphere" in (learned_refusal(sphere=True, kappa=True) or "")
    bias = torch.zeros(4, 4, requires_grad=True)
    assert "no gradient for a bias" in (refusal(Fractional(), mask=Fractional().mask_for(q, k, None, bias=bias)) or "")
    assert "at least one query and one key" in (refusal(Fractional(), k=k[..., :0, :], v=v[..., :0, :]) or "")
    assert "widths up to 254, got 8 and 300" in (refusal(Fractional(), v=v.repeat(1, 1, 1, 38)[..., :300]) or "")


class _OnDevice:
    """A tensor that claims to be on a device this machine may not have."""

    def __init__(self, tensor: Tensor, device: str) -> None:
        self.device, self.dtype, self.shape, self._tensor = torch.device(device), tensor.dtype, tensor.shape, tensor

    def __getattr__(self, name: str) -> object:
        return getattr(self._tensor, name)
