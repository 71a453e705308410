"""The formulas of every attention for single tokens, without any code of the library."""

import math

import torch
from torch import Tensor

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, StudentT


def formula_kappa(attention: Fractional, d: int, d_m: float) -> float:
    """Return kappa for the head width d and the intrinsic dimension d_m."""
    rule = attention.kappa
    if not isinstance(rule, str):
        return rule
    if rule == "auto":
        rule = "sphere" if isinstance(attention, Spherical) else "text"
    if attention.alpha == 2.0:
        return {"text": math.sqrt(d), "vision": math.sqrt(d), "sphere": 1.0}[rule]
    return {
        "text": math.sqrt(d) / (2 ** (1 / d) - 1),
        "vision": d,
        "sphere": math.pi / (math.pi ** (1 / d_m) - 1),
    }[rule]


def formula_kernel(attention: Attention, q: Tensor, k: Tensor, heads: int, counts: Tensor) -> Tensor:
    """Return C_ij for float64 queries (n, d) and keys (m, d) of one head; ``counts`` are the allowed keys per query."""
    d = q.size(-1)
    if isinstance(attention, DotProduct):
        scale = attention.scale or (10.0 if attention.qk_norm else 1 / math.sqrt(d))
        scores = scale * torch.stack([torch.stack([(a * b).sum() for b in k]) for a in q])
        if attention.qk_norm:
            scores = scores / q.norm(dim=-1)[:, None] / k.norm(dim=-1)
        if attention.ssmax:
            scores = scores * counts.clamp(min=1).log()[:, None]
        return (scores - scores.max()).exp()
    if isinstance(attention, StudentT):
        kappa = attention.kappa if isinstance(attention.kappa, float) else math.sqrt(d)
        squared = torch.stack([(a - k).square().sum(dim=-1) for a in q])
        power = (attention.nu + (attention.intrinsic_dim or d)) / 2
        return (1 + squared / (attention.nu * kappa**2)) ** -power
    if not isinstance(attention, Fractional):
        return torch.ones(len(q), len(k), dtype=torch.float64)
    spherical = isinstance(attention, Spherical)
    d_m = attention.intrinsic_dim or (max(1, d - 1) if spherical and heads == 1 else d)
    kappa = formula_kappa(attention, d, d_m)
    rows = []
    for a in q:
        row = []
        for b in k:
            if spherical:
                cosine = (a @ b / (a.norm() * b.norm())).clamp(-1, 1)
                distance = torch.arccos(cosine)
            else:
                distance = (a - b).square().sum().sqrt()
            z = distance / kappa
            row.append(torch.exp(-(z**2)) if attention.alpha == 2.0 else (1 + z) ** -(d_m + attention.alpha))
        rows.append(torch.stack(row))
    return torch.stack(rows)


def formula_output(attention: Attention, q: Tensor, k: Tensor, v: Tensor, allowed: Tensor) -> Tensor:
    """Return the output for (B, H, n, d) tokens and a (B, H, n, m) boolean matrix."""
    out = torch.zeros(*q.shape[:-1], v.size(-1), dtype=torch.float64)
    for b in range(q.size(0)):
        for h in range(q.size(1)):
            mask = allowed[b, h].double()
            kernel = formula_kernel(attention, q[b, h].double(), k[b, h].double(), q.size(1), mask.sum(-1)) * mask
            if attention.density_power:
                density = kernel.sum(-1)
                density = torch.where(density > 0, density, 1.0)  # a query without keys has no density
                kernel = kernel / density[None, :] ** attention.density_power
            sums = kernel.sum(-1, keepdim=True)
            weights = torch.where(sums > 0, kernel / sums.clamp(min=1e-300), 0.0)
            out[b, h] = weights @ v[b, h].double()
    return out
