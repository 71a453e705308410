"""Correctness, time and memory of the implementations that ``bench attention`` compares."""

from functools import partial

import torch

from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.bench.competitors import BASELINE, COMPETITORS, TOLERANCE, Competitor, Shape
from fna_lightning.bench.memory import peak_growth
from fna_lightning.bench.timing import take_turns

# the correct result is computed with a float64 matrix of all pairs, for at most this many tokens
CHECKED_LENGTH = 1024

TIME_BY_LENGTH = "forward+backward, seconds"
MEMORY_BY_LENGTH = "memory growth, MB"

# one measurement of one competitor at one shape
MeasurementRow = dict[str, object]
# quantity, competitor, sequence length: value
ByLength = dict[str, dict[str, dict[int, float]]]


def check(name: str, shape: Shape) -> dict[str, float]:
    """Return the largest errors of a competitor against float64.

    Raises:
        RuntimeError: if an error exceeds the tolerance of the competitor.
    """
    competitor = COMPETITORS[name]
    generator = torch.Generator().manual_seed(0)
    q, k, v, upstream = (
        torch.randn(1, min(2, heads), min(length, CHECKED_LENGTH), width, generator=generator, dtype=torch.float64)
        for _, heads, length, width in (shape.sizes, shape.key_sizes, shape.key_sizes, shape.sizes)
    )
    results = []
    for dtype in (torch.float32, torch.float64):
        # Both start from the same float32 values.
        query, key, value = (x.float().to(dtype).requires_grad_() for x in (q, k, v))
        if dtype == torch.float32:
            out = competitor.attend(query, key, value, shape.causal)
        else:
            mask = competitor.attention.mask_for(query, key, None, is_causal=shape.causal)
            out = KERNELS["reference"].run(Call(competitor.attention, query, key, value, mask, 0.0))
        results.append([out, *torch.autograd.grad(out, (query, key, value), upstream.float().to(dtype))])
    gaps = [
        ((actual - expected).abs().max() / expected.abs().max()).item()
        for actual, expected in zip(*results, strict=True)
    ]
    errors = {"output": gaps[0], "gradient": max(gaps[1:])}
    for quantity, tolerance in (competitor.tolerance or TOLERANCE).items():
        if not errors[quantity] <= tolerance:
            raise RuntimeError(
                f"{name} at {shape}: the error of the {quantity} is {errors[quantity]:.1e}, which exceeds "
                f"{tolerance:.0e}; it is not timed"
            )
    return errors


def measure(shape: Shape, names: list[str], seconds: float) -> list[MeasurementRow]:
    """Return one row per competitor: errors, milliseconds, and ratios to the baseline."""
    errors = {name: check(name, shape) for name in names}
    generator = torch.Generator().manual_seed(1)
    q, k, v, upstream = (
        torch.randn(sizes, generator=generator)
        for sizes in (shape.sizes, shape.key_sizes, shape.key_sizes, shape.sizes)
    )
    query, key, value = (x.clone().requires_grad_() for x in (q, k, v))

    def forward(competitor: Competitor) -> None:
        with torch.no_grad():
            competitor.attend(q, k, v, shape.causal)

    def forward_backward(competitor: Competitor) -> None:
        out = competitor.attend(query, key, value, shape.causal)
        torch.autograd.grad(out, (query, key, value), upstream)

    rows: dict[str, MeasurementRow] = {
        name: {"shape": str(shape), "competitor": name, **errors[name]} for name in names
    }
    for direction, function in (("forward", forward), ("forward+backward", forward_backward)):
        times = take_turns({name: partial(function, COMPETITORS[name]) for name in names}, seconds, rounds=200)
        for name, row in rows.items():
            row[f"{direction} ms"] = 1e3 * times[name]
            row[f"{direction} ratio"] = times[name] / times[BASELINE]
    return list(rows.values())


def measure_memory(shape: Shape, row: MeasurementRow, by_length: ByLength) -> None:
    """Measure the memory of a row's competitor and add time and memory to ``by_length``."""
    name = str(row["competitor"])
    megabytes = peak_growth(name, shape.sizes, torch.get_num_threads())
    row["memory growth MB"] = megabytes
    by_length[TIME_BY_LENGTH].setdefault(name, {})[shape.length] = float(str(row["forward+backward ms"])) / 1e3
    if megabytes is not None:
        by_length[MEMORY_BY_LENGTH].setdefault(name, {})[shape.length] = megabytes
