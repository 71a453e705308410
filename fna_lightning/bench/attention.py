"""Attention against PyTorch's own: time and memory of every kernel, as ratios to fused dot-product attention.

    fna-lightning bench attention --quick
    fna-lightning bench attention --json attention.json --plot attention.png

Everything takes turns in one run. Each competitor is compared with the float64 truth, forward and every gradient,
before any of its times is taken. Memory is the peak growth of one forward and backward step beyond its inputs, output
and gradients, each in a process of its own. What stores a matrix of weights spends most of its time on fresh memory,
unless freed memory is kept, as `fit` does: `--keep-memory` shows both sides so.
"""

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.bench.memory import growth
from fna_lightning.bench.plot import plot, slope
from fna_lightning.bench.timing import machine, take_turns
from fna_lightning.training.malloc import keep_freed_memory

ALPHA = 1.2
BASE = "dot product, SDPA"
EAGER = "dot product, eager"
PLAIN = "FNA, plain"
# relative to the largest value; float32 has 6e-8 and a plain cdist goes through a matrix product
TOLERANCE = {"output": 1e-5, "gradient": 1e-4}
PLAIN_TOLERANCE = {"output": 1e-3, "gradient": 1e-2}
# the truth is a float64 matrix of all pairs: it is computed for this many tokens of one head
CHECKED_LENGTH = 1024
# pairs of a call in competitors that store a weight for each, 1 GB; in a quick run a 64th of it
MOST_WEIGHTS = 2**28


@dataclass(frozen=True)
class Shape:
    """A batch of heads as one of the tasks has it."""

    name: str
    batch: int
    heads: int
    length: int
    width: int
    causal: bool = False

    @property
    def sizes(self) -> tuple[int, int, int, int]:
        """The shape of queries, keys and values."""
        return self.batch, self.heads, self.length, self.width

    def __str__(self) -> str:
        return f"{self.name} {'x'.join(map(str, self.sizes))}{' causal' if self.causal else ''}"


SHAPES = [
    Shape("IMDb", 16, 8, 512, 32),
    Shape("IMDb", 16, 1, 512, 8),
    Shape("IMDb", 16, 1, 512, 64),
    Shape("ViT", 64, 6, 65, 8),
    Shape("translation", 32, 8, 30, 64, causal=True),
    Shape("long", 1, 8, 1024, 32),
    Shape("long", 1, 8, 4096, 32),
    Shape("long", 1, 8, 16384, 32),
]
QUICK_SHAPES = [Shape("IMDb", 2, 8, 512, 32), *SHAPES[3:6], Shape("long", 1, 8, 2048, 32)]


@dataclass(frozen=True)
class Competitor:
    """One way to compute one attention.

    Args:
        attention: what it computes; its float64 reference is the truth.
        attend: how, as a function of q, k, v and whether it is causal.
        slow: whether it needs memory for every pair, or as long as if it did.
        tolerance: the error it may have.
    """

    attention: Attention
    attend: Callable[[Tensor, Tensor, Tensor, bool], Tensor]
    slow: bool = False
    tolerance: dict[str, float] | None = None

    def can(self, shape: Shape, *, quick: bool) -> bool:
        """Return whether the shape fits into memory and patience."""
        pairs = shape.batch * shape.heads * shape.length**2
        return pairs <= (MOST_WEIGHTS // 64 if quick else MOST_WEIGHTS) or not self.slow


def fused_dot_product(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """PyTorch's fused kernel."""
    return F.scaled_dot_product_attention(q, k, v, is_causal=causal)


def eager_dot_product(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
    """Dot-product attention as it is written down."""
    scores = q @ k.mT * q.size(-1) ** -0.5
    if causal:
        scores = scores.masked_fill(_future(q.size(-2)), -torch.inf)
    return scores.softmax(dim=-1) @ v


def plain_fna(q: Tensor, k: Tensor, v: Tensor, causal: bool, *, kappa: Callable[[Tensor], float | Tensor]) -> Tensor:
    """FNA as it is written down: cdist, power, normalise."""
    kernel = (1.0 + torch.cdist(q, k) / kappa(q)) ** -(q.size(-1) + ALPHA)
    if causal:
        kernel = kernel.masked_fill(_future(q.size(-2)), 0.0)
    return kernel / kernel.sum(dim=-1, keepdim=True) @ v


def _future(n: int) -> Tensor:
    return torch.ones(n, n, dtype=torch.bool).triu(1)


def _competitors() -> dict[str, Competitor]:
    def called(attention: Attention, q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return attention(q, k, v, is_causal=causal)

    found = {
        BASE: Competitor(DotProduct(), fused_dot_product),
        EAGER: Competitor(DotProduct(), eager_dot_product, slow=True),
        PLAIN: Competitor(
            Fractional(ALPHA),
            partial(plain_fna, kappa=Fractional(ALPHA).scale),
            slow=True,
            tolerance=PLAIN_TOLERANCE,
        ),
    }
    sample = torch.zeros(1, 1, 2, 8)
    for name, kernel in KERNELS.items():
        for label, make in (
            ("FNA", partial(Fractional, ALPHA)),
            ("FNA alpha=2", partial(Fractional, 2.0)),
            ("FNA sphere", partial(Spherical, ALPHA)),
        ):
            attention = make(kernel=name)
            call = Call(attention, sample, sample, sample, attention.mask_for(sample, sample, None), 0.0)
            # beside the attention itself, the slow ways show nothing new
            slow = name in ("chunked", "reference")
            if kernel.unavailable() or kernel.refusal(call) or (slow and label != "FNA"):
                continue
            found[f"{label}, {name}"] = Competitor(attention, partial(called, attention), slow)
    return found


COMPETITORS = _competitors()


def check(name: str, shape: Shape) -> dict[str, float]:
    """Return the largest errors of a competitor against the float64 truth; raise if they are too large."""
    it = COMPETITORS[name]
    generator = torch.Generator().manual_seed(0)
    sizes = (1, min(2, shape.heads), min(shape.length, CHECKED_LENGTH), shape.width)
    q, k, v, upstream = (torch.randn(sizes, generator=generator, dtype=torch.float64) for _ in range(4))
    results = []
    for dtype in (torch.float32, torch.float64):
        a, b, c = (x.float().to(dtype).requires_grad_() for x in (q, k, v))
        if dtype == torch.float32:
            out = it.attend(a, b, c, shape.causal)
        else:
            mask = it.attention.mask_for(a, b, None, is_causal=shape.causal)
            out = KERNELS["reference"].run(Call(it.attention, a, b, c, mask, 0.0))
        results.append([out, *torch.autograd.grad(out, (a, b, c), upstream.float().to(dtype))])
    gaps = [((got - want).abs().max() / want.abs().max()).item() for got, want in zip(*results, strict=True)]
    errors = {"output": gaps[0], "gradient": max(gaps[1:])}
    for what, bound in (it.tolerance or TOLERANCE).items():
        if not errors[what] <= bound:
            raise RuntimeError(
                f"{name} at {shape}: {what} is wrong by {errors[what]:.1e}, allowed is {bound:.0e}; not timed"
            )
    return errors


def measure(shape: Shape, names: list[str], seconds: float) -> list[dict[str, object]]:
    """Return one row for each competitor: errors, seconds and ratios to the fused dot product."""
    errors = {name: check(name, shape) for name in names}
    generator = torch.Generator().manual_seed(1)
    q, k, v, upstream = (torch.randn(shape.sizes, generator=generator) for _ in range(4))
    dq, dk, dv = (x.clone().requires_grad_() for x in (q, k, v))

    def forward(it: Competitor) -> None:
        with torch.no_grad():
            it.attend(q, k, v, shape.causal)

    def both(it: Competitor) -> None:
        torch.autograd.grad(it.attend(dq, dk, dv, shape.causal), (dq, dk, dv), upstream)

    rows = {name: {"shape": str(shape), "competitor": name, **errors[name]} for name in names}
    for what, function in (("forward", forward), ("forward+backward", both)):
        times = take_turns({name: partial(function, COMPETITORS[name]) for name in names}, seconds, rounds=200)
        for name, row in rows.items():
            row[f"{what} ms"] = 1e3 * times[name]
            row[f"{what} ratio"] = times[name] / times[BASE]
    return list(rows.values())


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of ``bench attention``."""
    parser.add_argument("--quick", action="store_true", help="fewer and smaller shapes, under a minute")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every number to this file")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="write time and memory against n to this PNG")
    parser.add_argument("--threads", type=int, default=None, help="threads to use; PyTorch's own choice if not given")
    parser.add_argument("--keep-memory", action="store_true", help="keep freed memory for the next call, as `fit` does")
    parser.add_argument("--seconds", type=float, default=None, help="time for each shape and direction (10, quick: 1)")


def run(args: argparse.Namespace) -> int:
    """Measure, print the table, and write what was asked for."""
    if args.threads is not None:
        if args.threads < 1:
            raise ValueError(f"--threads must be at least 1, got {args.threads}")
        torch.set_num_threads(args.threads)
    if args.keep_memory:
        keep_freed_memory()
    shapes = QUICK_SHAPES if args.quick else SHAPES
    seconds = args.seconds if args.seconds is not None else 1.0 if args.quick else 10.0
    about = machine()
    print(", ".join(f"{name}: {value}" for name, value in about.items()))
    print(f"float32, alpha = {ALPHA} unless said; best times; x is the ratio to {BASE!r} in the same run")
    rows: list[dict[str, object]] = []
    for shape in shapes:
        names = [name for name, it in COMPETITORS.items() if it.can(shape, quick=args.quick)]
        _progress(f"{shape}: {len(names)} competitors")
        measured = measure(shape, names, seconds)
        rows += measured
        print_table(str(shape), measured)
    lines = memory_and_slopes([shape for shape in shapes if shape.name == "long"], rows)
    if args.plot is not None:
        plot(args.plot, lines)
        print(f"wrote {args.plot}")
    if args.json is not None:
        document = {"machine": about, "alpha": ALPHA, "shapes": [asdict(shape) for shape in shapes], "rows": rows}
        args.json.write_text(json.dumps({**document, "against n": lines}, indent=1))
        print(f"wrote {args.json}")
    return 0


def memory_and_slopes(shapes: list[Shape], rows: list[dict[str, object]]) -> dict[str, dict[str, dict[int, float]]]:
    """Measure the memory of the long shapes, print both against n, and return {quantity: {name: {n: value}}}."""
    lines: dict[str, dict[str, dict[int, float]]] = {"forward+backward, seconds": {}, "memory growth, MB": {}}
    seconds, memory = lines.values()
    for shape in shapes:
        for row in rows:
            if row["shape"] != str(shape):
                continue
            name = str(row["competitor"])
            _progress(f"memory of {name} at n = {shape.length}")
            grown = growth(name, shape.sizes, torch.get_num_threads())
            row["memory growth MB"] = grown
            seconds.setdefault(name, {})[shape.length] = float(str(row["forward+backward ms"])) / 1e3
            if grown is not None:
                memory.setdefault(name, {})[shape.length] = grown
    for title, by_name in lines.items():
        print(f"\n{title}, against n")
        for name, points in by_name.items():
            steep = slope(points)
            shown = "  ".join(f"n={n}: {value:.3g}" for n, value in points.items())
            print(f"  {name:24s} {shown}" + ("" if steep is None else f"  slope {steep:.2f}"))
    return lines


def print_table(title: str, rows: list[dict[str, object]]) -> None:
    """Print the rows of one shape."""
    print(f"\n{title}")
    print(f"  {'':24s} {'forward':>12s} {'x':>6s} {'fwd+bwd':>12s} {'x':>6s} {'error':>8s} {'gradient':>8s}")
    for row in rows:
        print(
            f"  {row['competitor']:24s} {row['forward ms']:9.2f} ms {row['forward ratio']:6.2f} "
            f"{row['forward+backward ms']:9.2f} ms {row['forward+backward ratio']:6.2f} "
            f"{row['output']:8.0e} {row['gradient']:8.0e}",
            flush=True,
        )


def _progress(text: str) -> None:
    print(f"[bench] {text}", file=sys.stderr, flush=True)
