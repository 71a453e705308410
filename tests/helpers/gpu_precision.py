"""Errors of the GPU kernels' outputs with simulated rounding of their matrix products; the rest is float32 of PyTorch.

PYTHONPATH=tests python -m helpers.gpu_precision            writes the tables of docs/results/gpu_precision.md
"""

from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from fna_lightning.attention import Attention, DotProduct, Fractional
from fna_lightning.attention.kernels import Call
from fna_lightning.attention.kernels.flex import attend, score_mod_of
from fna_lightning.attention.masks import AttentionMask

from helpers.gpu_rounding import Product, bf16, ieee, tf32, tf32_cublas, tf32x3

PAGE = Path(__file__).parents[2] / "docs" / "results" / "gpu_precision.md"
EPS = torch.finfo(torch.float32).eps
HEADS, TOKENS = 4, 64
WIDTHS = (8, 32, 64, 128)


# Kernels --------------------------------------------------------------------------------------------------------------


def _softmax_mean(logits: Tensor, v: Tensor, product: Product) -> Tensor:
    """Return the weighted means as the fused kernels compute them: rounded weights, divided by the exact sum."""
    weights = (logits - logits.amax(dim=-1, keepdim=True)).exp()
    return product(weights, v) / weights.sum(dim=-1, keepdim=True)


def sdpa(attention: Attention, q: Tensor, k: Tensor, v: Tensor, product: Product) -> Tensor:
    """Return the output of PyTorch's fused kernel for an attention with a dot-product form."""
    form = attention.as_dot_product(q, k)
    assert form is not None
    wide_q, wide_k, scale = form
    return _softmax_mean(product(wide_q.float(), wide_k.float().mT) * scale, v.float(), product)


def flex(attention: Attention, q: Tensor, k: Tensor, v: Tensor, product: Product) -> Tensor:
    """Return the output of our FlexAttention kernel, with its own preparation and score_mod."""

    def function(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        norms: tuple[Tensor, Tensor],
        kappa: Tensor,
        exponent: Tensor,
        bias: Tensor | None,
        mask: object,
        profile: str,
        sphere: bool,
    ) -> Tensor:
        sizes = (q.size(0), q.size(1), q.size(2), k.size(2))
        index = [torch.arange(size).view([-1 if i == axis else 1 for i in range(4)]) for axis, size in enumerate(sizes)]
        score_mod = score_mod_of(profile, sphere, kappa, exponent, *norms, bias)  # type: ignore[arg-type]
        return _softmax_mean(score_mod(product(q.float(), k.float().mT), *index), v.float(), product)

    return attend(Call(attention, q, k, v, AttentionMask(), 0.0), function)


def old_flex(attention: Attention, q: Tensor, k: Tensor, v: Tensor, product: Product) -> Tensor:
    """Return the output of the kernel that added the norms as coordinates, for a power law."""
    origin = k.mean(dim=-2, keepdim=True)
    q, k = q - origin, k - origin
    q_norm, k_norm = (x.square().sum(dim=-1, keepdim=True) for x in (q, k))
    wide_q = torch.cat([-2.0 * q, q_norm, torch.ones_like(q_norm)], dim=-1)
    wide_k = torch.cat([k, torch.ones_like(k_norm), k_norm], dim=-1)
    squared = product(wide_q, wide_k.mT)
    squared = torch.where(squared <= 8 * EPS * (q_norm + k_norm.mT), 0.0, squared)
    return _softmax_mean(_log_kernel(attention, q, squared), v, product)


def triton(attention: Attention, q: Tensor, k: Tensor, v: Tensor, product: Product, values: Product) -> Tensor:
    """Return the output by the formula of the Triton kernel; ``values`` multiplies weights and values."""
    tie = 2.0**-20 * max(1.0, q.size(-1) / 64)
    if q.dtype == torch.float32:
        origin = k.mean(dim=-2, keepdim=True)
        q, k = q - origin, k - origin
        norms = _norms(q) + _norms(k).mT
        squared = norms - 2.0 * product(q, k.mT)
        squared = torch.where(squared <= tie * norms, 0.0, squared)
    else:
        q, k, v = q.float(), k.float(), v.float()
        norms = (1.0 - tie) * _norms(q) + ((1.0 - tie) * _norms(k)).mT
        squared = (norms - 2.0 * product(q, k.mT)).clamp(min=0.0)
    return _softmax_mean(_log_kernel(attention, q, squared), v, values)


def triton_with_threshold(
    attention: Attention, q: Tensor, k: Tensor, v: Tensor, product: Product, values: Product
) -> Tensor:
    """Return the output of ``triton`` in half precision, if small distances were set to 0 as they are in float32."""
    q, k, v = q.float(), k.float(), v.float()
    norms = _norms(q) + _norms(k).mT
    squared = norms - 2.0 * product(q, k.mT)
    squared = torch.where(squared <= 2.0**-20 * max(1.0, q.size(-1) / 64) * norms, 0.0, squared)
    return _softmax_mean(_log_kernel(attention, q, squared), v, values)


def _norms(x: Tensor) -> Tensor:
    return x.square().sum(dim=-1, keepdim=True)


def _log_kernel(attention: Attention, q: Tensor, squared: Tensor) -> Tensor:
    radial = attention.radial(q)
    assert radial is not None
    if radial.profile == "gaussian":
        return -squared / radial.kappa**2
    return -radial.exponent * torch.log1p(squared.sqrt() / radial.kappa)


TEXT, VISION, GAUSSIAN, DOT = Fractional(1.2), Fractional(1.2, "vision"), Fractional(2.0), DotProduct()
# An attention, the type of its inputs, a simulated kernel and its products.
Simulation = tuple[Attention, torch.dtype, Callable[..., Tensor], tuple[Product, ...]]
FLOAT32: dict[str, Simulation] = {
    "SDPA, TF32": (DOT, torch.float32, sdpa, (tf32_cublas,)),
    "SDPA, 3xTF32": (DOT, torch.float32, sdpa, (tf32x3,)),
    "flex": (TEXT, torch.float32, flex, (ieee,)),
    "flex, vision": (VISION, torch.float32, flex, (ieee,)),
    "triton, highest": (TEXT, torch.float32, triton, (tf32x3, tf32x3)),
    "triton, highest, vision": (VISION, torch.float32, triton, (tf32x3, tf32x3)),
    "triton, high": (TEXT, torch.float32, triton, (tf32x3, tf32)),
    "triton, high, vision": (VISION, torch.float32, triton, (tf32x3, tf32)),
    "old flex, TF32": (TEXT, torch.float32, old_flex, (tf32,)),
    "old flex, TF32, vision": (VISION, torch.float32, old_flex, (tf32,)),
    "Gaussian, sdpa, TF32": (GAUSSIAN, torch.float32, sdpa, (tf32_cublas,)),
    "Gaussian, sdpa, 3xTF32": (GAUSSIAN, torch.float32, sdpa, (tf32x3,)),
    "Gaussian, triton, high": (GAUSSIAN, torch.float32, triton, (tf32x3, tf32)),
}
BFLOAT16: dict[str, Simulation] = {
    "SDPA": (DOT, torch.bfloat16, sdpa, (bf16,)),
    "flex": (TEXT, torch.bfloat16, flex, (bf16,)),
    "flex, vision": (VISION, torch.bfloat16, flex, (bf16,)),
    "triton": (TEXT, torch.bfloat16, triton, (bf16, bf16)),
    "triton, vision": (VISION, torch.bfloat16, triton, (bf16, bf16)),
    "triton, threshold, vision": (VISION, torch.bfloat16, triton_with_threshold, (bf16, bf16)),
    "Gaussian, sdpa": (GAUSSIAN, torch.bfloat16, sdpa, (bf16,)),
    "Gaussian, triton": (GAUSSIAN, torch.bfloat16, triton, (bf16, bf16)),
}


# Tokens and errors ----------------------------------------------------------------------------------------------------


CLUSTERS, SHIFTED = "clusters", "shifted by 100"
CASES = ("scale 0.1", "scale 1", "scale 10", "scale 100", "tied", SHIFTED, CLUSTERS)


def tokens(case: str, d: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return (1, heads, tokens, d) queries, keys and values of a case, in float32."""
    generator = torch.Generator().manual_seed(d)
    q, k, v = torch.randn(3, 1, HEADS, TOKENS, d, generator=generator).unbind()
    if case == "tied":
        return q, q.clone(), v
    if case == SHIFTED:
        return q + 100.0, k + 100.0, v
    if case == CLUSTERS:
        centers = 10.0 * torch.randn(1, HEADS, 4, d, generator=generator).repeat(1, 1, TOKENS // 4, 1)
        return centers + 0.1 * q, centers + 0.1 * k, v
    scale = float(case.removeprefix("scale "))
    return scale * q, scale * k, v


def error(simulation: Simulation, case: str, d: int) -> float:
    """Return the largest error of the output relative to the largest output in float64, for the rounded tokens."""
    attention, dtype, kernel, products = simulation
    q, k, v = (x.to(dtype) for x in tokens(case, d))
    exact = attention.masked_weights(q.double(), k.double(), AttentionMask(), None) @ v.double()
    out = kernel(attention, q, k, v, *products).to(dtype).double()
    return ((out - exact).abs().max() / exact.abs().max()).item()


Table = dict[tuple[str, int], dict[str, float]]


def table(simulations: dict[str, Simulation]) -> Table:
    """Return the error of every simulation, by case and width."""
    return {
        (case, d): {name: error(simulation, case, d) for name, simulation in simulations.items()}
        for case in CASES
        for d in WIDTHS
    }


# Page -----------------------------------------------------------------------------------------------------------------


def markdown(errors: Table) -> str:
    """Return the errors as a table in Markdown."""
    names = list(next(iter(errors.values())))
    lines = ["| tokens | d | " + " | ".join(names) + " |", "|---|---|" + "---|" * len(names)]
    for (case, d), row in errors.items():
        lines.append(f"| {case} | {d} | " + " | ".join(f"{value:.0e}" for value in row.values()) + " |")
    return "\n".join(lines)


def with_tables(page: str) -> str:
    """Return the page with newly computed tables."""
    for name, simulations in (("float32", FLOAT32), ("bfloat16", BFLOAT16)):
        before, rest = page.split(f"<!-- {name} -->\n", 1)
        after = rest.split("<!-- end -->\n", 1)[1]
        page = f"{before}<!-- {name} -->\n{markdown(table(simulations))}\n<!-- end -->\n{after}"
    return page


if __name__ == "__main__":
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
