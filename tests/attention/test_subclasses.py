"""Subclasses of Fractional: which of them the fused kernels compute."""

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Fractional, Spherical
from fna_lightning.attention.kernels import Call, choose

from helpers.attention_cpu import needs_kernel, random_qkv


class Taxicab(Fractional):
    """Overrides the distance, so the fused kernels must not compute it."""

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.cdist(q, k, p=1.0)


class Taller(Taxicab):
    """Inherits the formula of Taxicab."""


class Halved:
    """A mixin with a formula of its own."""

    def log_profile(self, distance: Tensor, kappa: float | Tensor, exponent: float | Tensor) -> Tensor:
        return -0.5 * exponent * torch.log1p(distance / kappa)


class HalvedSpherical(Halved, Spherical):
    """Takes its formula from a mixin."""


class Renamed(Fractional):
    """Changes no formula, so the fused kernels compute it."""

    auto_kappa = "vision"


class Restated(Fractional):
    """Overrides the distance by an equal one and states its form again."""

    radial_form = "euclidean"

    def distance(self, q: Tensor, k: Tensor) -> Tensor:
        return torch.cdist(q, k, compute_mode="donot_use_mm_for_euclid_dist")


@pytest.mark.parametrize("alpha", [1.2, 2.0])
@pytest.mark.parametrize("cls", [Taxicab, Taller, HalvedSpherical])
def test_a_subclass_with_its_own_formula_is_not_computed_by_fused_kernels(cls, alpha) -> None:
    q, k, v = random_qkv(6, 6, 4, 4)
    attention = cls(alpha)
    assert attention.radial_form is None
    kernel = choose(Call(attention, q, k, v, attention.mask_for(q, k, None), 0.0)).name
    assert kernel not in ("cpu", "flex", "sdpa")
    torch.testing.assert_close(attention(q, k, v), attention.weights(q, k) @ v)


@needs_kernel
@pytest.mark.parametrize("cls", [Renamed, Restated])
def test_a_subclass_with_the_same_formula_is_computed_by_the_c_kernel(cls) -> None:
    q, k, v = random_qkv(6, 6, 4, 4)
    attention = cls(1.2)
    assert choose(Call(attention, q, k, v, attention.mask_for(q, k, None), 0.0)).name == "cpu"
    torch.testing.assert_close(attention(q, k, v), attention.weights(q, k) @ v)


@needs_kernel
def test_the_radial_form_is_evaluated_once_per_call(monkeypatch: pytest.MonkeyPatch) -> None:
    q, k, v = random_qkv(6, 6, 4, 4)
    calls = []
    radial = Fractional.radial
    monkeypatch.setattr(Fractional, "radial", lambda self, q: calls.append(q) or radial(self, q))
    Fractional(1.2, kernel="cpu")(q, k, v)
    assert len(calls) == 1
