"""Implementations that ``bench attention`` compares, and the shapes on which it compares them."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical, StudentT
from fna_lightning.attention.kernels import KERNELS, Call

ALPHA = 1.2
BASELINE = "dot product, SDPA"
EAGER = "dot product, eager"
PLAIN = "FNA, plain"
# maximum errors relative to the largest value; the epsilon of float32 is 6e-8
TOLERANCE = {"output": 1e-5, "gradient": 1e-4}
# torch.cdist computes distances from a matrix product, which loses digits
PLAIN_TOLERANCE = {"output": 1e-3, "gradient": 1e-2}
# maximum number of pairs for implementations that store a weight per pair: 1 GB; a quick run uses a 64th of it
MAX_WEIGHTS = 2**28


@dataclass(frozen=True)
class Shape:
    """Shape of queries, keys and values in one of the tasks.

    Args:
        name: name of the task.
        batch: number of sequences.
        heads: number of heads.
        length: number of queries.
        width: width of a head.
        causal: whether queries attend to earlier tokens only.
        keys: number of keys in cross-attention; None for self-attention, with as many keys as queries.
    """

    name: str
    batch: int
    heads: int
    length: int
    width: int
    causal: bool = False
    keys: int | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The (batch, heads, length, width) of the queries."""
        return self.batch, self.heads, self.length, self.width

    @property
    def key_sizes(self) -> tuple[int, int, int, int]:
        """The (batch, heads, keys, width) of keys and values."""
        return self.batch, self.heads, self.length if self.keys is None else self.keys, self.width

    def __str__(self) -> str:
        keys = "" if self.keys is None else f", {self.keys} keys"
        return f"{self.name} {'x'.join(map(str, self.sizes))}{' causal' if self.causal else ''}{keys}"


SHAPES = [
    Shape("IMDb", 16, 8, 512, 32),
    Shape("IMDb", 16, 1, 512, 8),
    Shape("IMDb", 16, 1, 512, 64),
    Shape("ViT", 64, 6, 65, 8),
    Shape("translation", 32, 8, 30, 64, causal=True),
    Shape("fields", 16, 4, 32, 8, keys=64),
    Shape("fields", 16, 4, 32, 8, keys=1024),
    Shape("long", 1, 8, 1024, 32),
    Shape("long", 1, 8, 4096, 32),
    Shape("long", 1, 8, 16384, 32),
]
QUICK_SHAPES = [Shape("IMDb", 2, 8, 512, 32), *SHAPES[3:8], Shape("long", 1, 8, 2048, 32)]


@dataclass(frozen=True)
class Competitor:
    """One implementation of one attention.

    Args:
        attention: the attention it computes; its reference kernel in float64 is the correct result.
        attend: function of q, k, v and whether attention is causal.
        slow: whether its memory or time limits it to short sequences.
        tolerance: its maximum errors; None for ``TOLERANCE``.
    """

    attention: Attention
    attend: Callable[[Tensor, Tensor, Tensor, bool], Tensor]
    slow: bool = False
    tolerance: dict[str, float] | None = None

    def supports(self, shape: Shape, *, quick: bool) -> bool:
        """Whether the shape is small enough for this implementation."""
        pairs = shape.batch * shape.heads * shape.length * shape.key_sizes[2]
        return pairs <= (MAX_WEIGHTS // 64 if quick else MAX_WEIGHTS) or not self.slow


def fused_dot_product(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Dot-product attention with PyTorch's fused kernel."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def eager_dot_product(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Dot-product attention as a direct translation of its formula."""
    scores = q @ k.mT * q.size(-1) ** -0.5
    if causal:
        scores = scores.masked_fill(_future(q.size(-2)), -torch.inf)
    return scores.softmax(dim=-1) @ v


def plain_fna(q: Tensor, k: Tensor, v: Tensor, causal: bool, *, kappa: Callable[[Tensor], float | Tensor]) -> Tensor:
    """FNA as a direct translation of its formula: cdist, power, normalization."""
    kernel = (1.0 + torch.cdist(q, k) / kappa(q)) ** -(q.size(-1) + ALPHA)
    if causal:
        kernel = kernel.masked_fill(_future(q.size(-2)), 0.0)
    return kernel / kernel.sum(dim=-1, keepdim=True) @ v


def _future(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def _attend(attention: Attention, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    return attention(q, k, v, is_causal=causal)


def _competitors() -> dict[str, Competitor]:
    """Return the dot-product baselines, plain FNA, and every kernel that can run here."""
    competitors = {
        BASELINE: Competitor(DotProduct(), fused_dot_product),
        EAGER: Competitor(DotProduct(), eager_dot_product, slow=True),
        PLAIN: Competitor(
            Fractional(ALPHA),
            partial(plain_fna, kappa=Fractional(ALPHA).scale),
            slow=True,
            tolerance=PLAIN_TOLERANCE,
        ),
    }
    attentions: dict[str, Callable[..., Attention]] = {
        "FNA": partial(Fractional, ALPHA),
        "FNA alpha=2": partial(Fractional, 2.0),
        "FNA sphere": partial(Spherical, ALPHA),
        "Cauchy": partial(StudentT, 1.0),
    }
    sample = torch.zeros(1, 1, 2, 8)
    for name, kernel in KERNELS.items():
        for label, make in attentions.items():
            attention = make(kernel=name)
            call = Call(attention, sample, sample, sample, attention.mask_for(sample, sample, None), 0.0)
            # The slow kernels are measured for FNA only, because the other attentions would add no information.
            slow = name in ("chunked", "reference")
            if kernel.unavailable() or kernel.refusal(call) or (slow and label != "FNA"):
                continue
            competitors[f"{label}, {name}"] = Competitor(attention, partial(_attend, attention), slow)
    return competitors


COMPETITORS = _competitors()
