"""The FlexAttention kernel: its forward pass on the processor against the float64 truth; a GPU is not needed."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels.flex import attend

KINDS: dict[str, Callable[..., Attention]] = {
    "power law": lambda **rest: Fractional(1.2, **rest),
    "power law, vision": lambda **rest: Fractional(1.2, "vision", **rest),
    "Gaussian": lambda **rest: Fractional(2.0, **rest),
    "sphere": lambda **rest: Spherical(1.2, **rest),
}
# FlexAttention carries the squared norms through a product, so it holds a token's scale of rounding, not the pair's
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def tokens(n: int, m: int, d: int, d_v: int, scale: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, length, d, generator=generator) * scale for length in (n, m))
    return q, k, torch.randn(2, 3, m, d_v, generator=generator)


def flex(attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False) -> Tensor:
    return attend(Call(attention, q, k, v, attention.visibility(q, k, mask, is_causal=causal), 0.0), flex_attention)


def truth(
    kind: str, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False, exclude_self: bool = False
) -> Tensor:
    attention = KINDS[kind](kernel="reference", exclude_self=exclude_self)
    return attention(q.double(), k.double(), v.double(), mask, is_causal=causal)


def gap(got: Tensor, want: Tensor) -> float:
    return ((got.double() - want).abs().max() / want.abs().max()).item()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("scale", [0.1, 1.0, 10.0])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("n", "m", "d", "d_v"), [(33, 65, 8, 5), (64, 48, 33, 16)])
def test_forward_is_the_truth(kind, n, m, d, d_v, scale, dtype) -> None:
    if kind == "Gaussian" and scale == 10.0:
        pytest.skip("logits of some hundred: float32 itself has not the digits")
    q, k, v = (x.to(dtype) for x in tokens(n, m, d, d_v, scale))
    out = flex(KINDS[kind](), q, k, v)
    assert out.dtype == dtype
    assert gap(out, truth(kind, q, k, v)) < TOLERANCE[dtype]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("restriction", ["padding", "causal", "general", "self"])
def test_masks(kind, restriction) -> None:
    q, k, v = tokens(40, 40, 8, 8, 1.0)
    mask = None
    if restriction == "padding":
        mask = (torch.arange(40) < torch.tensor([40, 17])[:, None])[:, None, None, :]
    if restriction == "general":
        mask = torch.rand(2, 1, 40, 40, generator=torch.Generator().manual_seed(3)) < 0.5
        mask[0, 0, 4] = False
    causal, exclude_self = restriction == "causal", restriction == "self"
    out = flex(KINDS[kind](exclude_self=exclude_self), q, k, v, mask, causal)
    want = truth(kind, q, k, v, mask, causal, exclude_self)
    assert gap(out, want) < TOLERANCE[torch.float32]
    if restriction == "general":
        assert out[0, :, 4].eq(0).all()


def test_a_token_far_from_the_origin_is_at_no_distance_from_itself() -> None:
    q, _, v = tokens(64, 64, 32, 8, 1.0)
    shifted = q + 100.0
    narrow = Fractional(1.2, 1e-3)
    # with so small a scale everything but the token itself is out of sight
    assert gap(flex(narrow, shifted, shifted, v), v.double()) < TOLERANCE[torch.float32]


def test_any_number_of_leading_axes() -> None:
    q, k, v = tokens(9, 7, 8, 8, 1.0)
    attention = Fractional(1.2, intrinsic_dim=8)
    want = flex(attention, q, k, v)
    torch.testing.assert_close(flex(attention, q[0], k[0], v[0]), want[0])
    torch.testing.assert_close(flex(attention, q[0, 0], k[0, 0], v[0, 0]), want[0, 0])


def test_it_says_why_it_cannot_run() -> None:
    kernel = KERNELS["flex"]
    if not torch.cuda.is_available():
        assert "needs a CUDA device" in (kernel.unavailable() or "")
    q, k, v = tokens(4, 4, 8, 8, 1.0)

    def refusal(attention: Attention, dropout: float = 0.0, *, on_cuda: bool = True) -> str | None:
        device = "cuda" if on_cuda else "cpu"
        fake = torch.empty(1, 1, 4, 8, device="meta")
        call = Call(attention, _Elsewhere(fake, device), fake, fake, attention.visibility(fake, fake, None), dropout)
        return kernel.refusal(call)

    assert "the tensors are on cpu" in (kernel.refusal(Call(Fractional(), q, k, v, Fractional().visibility(q, k, None), 0.0)) or "")
    assert refusal(Fractional()) is None
    assert "no dropout, got 0.1" in (refusal(Fractional(), 0.1) or "")
    assert "density_power" in (refusal(Fractional(density_power=1.0)) or "")
    assert "not a function of a distance" in (refusal(DotProduct()) or "")


class _Elsewhere:
    """A tensor's shape and dtype on a device this machine may not have."""

    def __init__(self, tensor: Tensor, device: str) -> None:
        self.device, self.dtype, self.shape, self._tensor = torch.device(device), tensor.dtype, tensor.shape, tensor

    def __getattr__(self, name: str) -> object:
        return getattr(self._tensor, name)
