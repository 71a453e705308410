"""Cases of ``bench attention --device cuda``: the kernels, the shapes, and the check against float64."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from fna_lightning.attention import Attention, DotProduct, Fractional
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.masks import AttentionMask
from fna_lightning.bench.competitors import ALPHA, BASELINE

# kernels of FNA, in this order, those among them that this version has
KERNEL_NAMES = ("triton", "flex", "chunked")
GAUSSIAN = "FNA alpha=2, sdpa"
MASKS = ("none", "padding", "causal")
# tokens of a batch over all heads of a sequence, so that a short sequence fills a GPU, too
BATCH_TOKENS = 16_384
HEADS = 8
# at most; not a multiple of any block size, so that the last blocks are checked, too
CHECKED_LENGTH = 1000
# A kernel may store a weight per pair, or take a Python loop over blocks.
SLOW_LENGTH = {"chunked": 4096}
# largest errors relative to the largest value, by type and matmul precision
TOLERANCE = {
    (torch.float32, "highest"): {"output": 1e-5, "gradient": 1e-4},
    # one TF32 product has a mantissa of 10 bits, as the baseline at this precision
    (torch.float32, "high"): {"output": 3e-3, "gradient": 1e-2},
    (torch.bfloat16, "highest"): {"output": 2e-2, "gradient": 5e-2},
}
# largest distance of the mean output from 1 if all values are 1 and weights are dropped
DROPOUT_TOLERANCE = 0.03


@dataclass(frozen=True)
class Case:
    """One shape and setting.

    Args:
        length: number of tokens.
        width: width of a head.
        dtype: type of queries, keys and values.
        precision: ``torch.set_float32_matmul_precision``.
        mask: "none", "padding" (a key mask) or "causal".
        dropout: probability of dropping a weight.
        batch: number of sequences; None fills a batch of ``BATCH_TOKENS`` tokens.
    """

    length: int
    width: int
    dtype: torch.dtype = torch.float32
    precision: str = "highest"
    mask: str = "none"
    dropout: float = 0.0
    batch: int | None = None

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """Batch, heads, length and width."""
        return self.batch or max(1, BATCH_TOKENS // self.length), HEADS, self.length, self.width

    def __str__(self) -> str:
        kind = str(self.dtype).removeprefix("torch.") + (f" {self.precision}" if self.dtype == torch.float32 else "")
        parts = [f"{'x'.join(map(str, self.sizes))} {kind}"]
        parts += [f"{self.mask} mask"] if self.mask != "none" else []
        return ", ".join([*parts, f"dropout {self.dropout}"] if self.dropout else parts)


def timed_cases(*, quick: bool) -> list[Case]:
    """Return the cases that are timed."""
    lengths, widths = ((512, 4096), (64,)) if quick else ((128, 512, 2048, 8192, 16384), (32, 64, 128))
    cases = [Case(length, width, *kind) for kind in TOLERANCE for width in widths for length in lengths]
    extra = [Case(length, 64, torch.bfloat16) for length in lengths if 512 <= length <= 4096]
    cases += [replace(case, mask=mask) for case in extra for mask in MASKS[1:]]
    return cases + [replace(case, dropout=0.1) for case in extra]


def interpreted_cases() -> list[Case]:
    """Return few and small float32 cases, for Triton's interpreter."""
    cases = [Case(80, width, batch=1) for width in (8, 32, 64)]
    return [*cases, *(replace(cases[1], mask=mask) for mask in MASKS[1:]), replace(cases[1], dropout=0.1)]


@dataclass(frozen=True)
class Implementation:
    """One implementation that is checked and timed.

    Args:
        name: name in tables.
        attention: the attention it computes; its reference kernel in float64 is the correct result.
        kernel: name of the kernel; None calls PyTorch's function directly.
    """

    name: str
    attention: Attention
    kernel: str | None

    def refusal(self, case: Case, device: torch.device) -> str | None:
        """Return why this case is not run, or None."""
        if self.kernel is None:
            return None
        if case.length > SLOW_LENGTH.get(self.kernel, case.length):
            return "too slow for this length"
        q, k, v, mask = inputs(replace(case, length=16, batch=1), device)
        call = Call(self.attention, q, k, v, self._mask(q, k, mask, case), case.dropout)
        return KERNELS[self.kernel].refusal(call)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, case: Case) -> Tensor:
        """Return the output."""
        if self.kernel is None:
            return F.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=case.mask == "causal", dropout_p=case.dropout
            )
        call = Call(self.attention, q, k, v, self._mask(q, k, mask, case), case.dropout)
        return KERNELS[self.kernel].run(call)

    def exact(self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, case: Case) -> Tensor:
        """Return the output of the reference formula."""
        return KERNELS["reference"].run(Call(self.attention, q, k, v, self._mask(q, k, mask, case), 0.0))

    def _mask(self, q: Tensor, k: Tensor, mask: Tensor | None, case: Case) -> AttentionMask:
        return self.attention.mask_for(q, k, mask, is_causal=case.mask == "causal")


def implementations(names: tuple[str, ...] = KERNEL_NAMES) -> list[Implementation]:
    """Return the baseline and every kernel of FNA that can run here."""
    available = [name for name in names if name in KERNELS and KERNELS[name].unavailable() is None]
    return [
        Implementation(BASELINE, DotProduct(), None),
        *(Implementation(f"FNA, {name}", Fractional(ALPHA, kernel=name), name) for name in available),
        Implementation(GAUSSIAN, Fractional(2.0), "sdpa"),
    ]


def inputs(case: Case, device: torch.device, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Return random queries, keys and values, and the key mask of the case."""
    generator = torch.Generator(device).manual_seed(seed)
    q, k, v = (torch.randn(case.sizes, generator=generator, device=device).to(case.dtype) for _ in range(3))
    if case.mask != "padding":
        return q, k, v, None
    # lengths from half of the tokens to all of them
    lengths = torch.linspace(0.5, 1.0, len(q), device=device)[:, None] * case.length
    return q, k, v, (torch.arange(case.length, device=device) < lengths)[:, None, None, :]


def check(implementation: Implementation, case: Case, device: torch.device) -> dict[str, float]:
    """Return the largest errors of output and gradients against float64, on a shorter sequence of the same case.

    Raises:
        ArithmeticError: if an error exceeds its tolerance.
    """
    case = replace(case, length=min(case.length, CHECKED_LENGTH), batch=2)
    q, k, v, mask = inputs(case, device)
    plain = replace(case, dropout=0.0)
    results = []
    for dtype, function in ((case.dtype, implementation.attend), (torch.float64, implementation.exact)):
        leaves = [x.to(dtype).requires_grad_() for x in (q, k, v)]
        out = function(leaves[0], leaves[1], leaves[2], mask, plain)
        results.append([out, *torch.autograd.grad(out, leaves, q.to(dtype))])
    gaps = [_gap(actual, expected) for actual, expected in zip(*results, strict=True)]
    errors = {"output": gaps[0], "gradient": max(gaps[1:])}
    limits = dict(TOLERANCE[case.dtype, case.precision])
    if case.dropout:
        out = implementation.attend(q, k, torch.ones_like(v), mask, case)
        errors["dropout"] = abs(out.float().mean().item() - 1.0)
        limits["dropout"] = DROPOUT_TOLERANCE
    for quantity, limit in limits.items():
        # not <=, so that NaN is an error
        if not errors[quantity] <= limit:
            raise ArithmeticError(f"the error of the {quantity} is {errors[quantity]:.1e}, which exceeds {limit:.0e}")
    return errors


def step(
    implementation: Implementation, case: Case, device: torch.device
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Return the functions that compute one forward pass, and one forward and backward pass."""
    q, k, v, mask = inputs(case, device)
    leaves = [x.clone().requires_grad_() for x in (q, k, v)]

    def forward() -> None:
        with torch.no_grad():
            implementation.attend(q, k, v, mask, case)

    def forward_backward() -> None:
        out = implementation.attend(leaves[0], leaves[1], leaves[2], mask, case)
        torch.autograd.grad(out, leaves, q)

    return forward, forward_backward


def _gap(actual: Tensor, expected: Tensor) -> float:
    return ((actual.double() - expected).abs().max() / expected.abs().max()).item()
