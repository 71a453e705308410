"""The forward pass of the FlexAttention kernel on the CPU, compared with the float64 reference; no GPU is needed."""

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import flex_attention

from fna_lightning.attention import Attention, DotProduct, Fractional
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels.flex import attend

from helpers.attention_cases import RADIAL_ATTENTIONS

NAMES = ("power law", "power law, vision", "Gaussian", "sphere")
# The squared norms go through a matrix product, so the error is relative to the tokens, not to their distance.
TOLERANCE = {torch.float32: 2e-5, torch.bfloat16: 2e-2}


def tokens(n: int, m: int, d: int, d_v: int, scale: float, seed: int = 0) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    q, k = (torch.randn(2, 3, length, d, generator=generator) * scale for length in (n, m))
    return q, k, torch.randn(2, 3, m, d_v, generator=generator)


def flex(
    attention: Attention, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None = None, causal: bool = False
) -> Tensor:
    return attend(Call(attention, q, k, v, attention.mask_for(q, k, mask, is_causal=causal), 0.0), flex_attention)


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


def test_a_refusal_names_its_reason() -> None:
    kernel = KERNELS["flex"]
    if not torch.cuda.is_available():
        assert "needs a CUDA device" in (kernel.unavailable() or "")
    q, k, v = tokens(4, 4, 8, 8, 1.0)

    def refusal(attention: Attention, dropout: float = 0.0, device: str = "cuda") -> str | None:
        mask = attention.mask_for(q, k, None)
        return kernel.refusal(Call(attention, _OnDevice(q, device), k, v, mask, dropout))

    assert "the tensors are on cpu" in (refusal(Fractional(), device="cpu") or "")
    assert refusal(Fractional()) is None
    assert "no dropout, got 0.1" in (refusal(Fractional(), 0.1) or "")
    assert "density_power" in (refusal(Fractional(density_power=1.0)) or "")
    assert "not a function of a distance" in (refusal(DotProduct()) or "")


class _OnDevice:
    """A tensor that claims to be on a device this machine may not have."""

    def __init__(self, tensor: Tensor, device: str) -> None:
        self.device, self.dtype, self.shape, self._tensor = torch.device(device), tensor.dtype, tensor.shape, tensor

    def __getattr__(self, name: str) -> object:
        return getattr(self._tensor, name)
