"""``fna-lightning bench analysis``: the graph analyses against NumPy's eigenvalues, SciPy's ARPACK and networkx.

Each row first checks that the results agree, then times the implementations in turns and prints the ratio of the
medians.
"""

import argparse
import json
import math
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from scipy.sparse.linalg import eigs
from threadpoolctl import threadpool_limits
from torch import Tensor

from fna_lightning.attention import attention_weights
from fna_lightning.bench.timing import machine
from fna_lightning.graph import path_lengths, spectral_gap

HEAD_DIM = 64
GAP_AGREEMENT = 1e-6
TURN_SECONDS = 0.1
# implementations that the second eigenvalue is compared with, and what the table calls them
EIGENVALUE_BASELINES = {"eig": "eig", "eig32": "eig f32", "eigvals": "eigvals", "arpack": "ARPACK"}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``bench analysis``."""
    parser.add_argument(
        "--tokens", type=int, default=512, help="tokens of each attention matrix (default: %(default)s)"
    )
    parser.add_argument("--repeats", type=int, default=7, help="timed runs of each method (default: %(default)s)")
    parser.add_argument(
        "--sources",
        type=int,
        default=64,
        help="number of tokens networkx starts from; its time is scaled to all tokens (default: %(default)s)",
    )
    parser.add_argument(
        "--threads",
        type=int,
        default=1,
        help="threads of all implementations; 0 keeps the libraries' defaults (default: %(default)s)",
    )
    parser.add_argument("--quick", action="store_true", help="two attentions, 3 repeats, networkx from 16 tokens")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random tokens (default: %(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all numbers to FILE")


def run(args: argparse.Namespace) -> int:
    """Measure and print; return 1 if results disagree, in which case their times are not printed."""
    if args.tokens < 2 or args.repeats < 1 or args.sources < 1 or args.threads < 0:
        print(
            "bench analysis needs --tokens >= 2, --repeats >= 1, --sources >= 1 and --threads >= 0, "
            f"got {args.tokens}, {args.repeats}, {args.sources} and {args.threads}"
        )
        return 2
    with thread_limit(args.threads):
        return measure(args)


def measure(args: argparse.Namespace) -> int:
    """Measure and print with valid arguments."""
    repeats = min(args.repeats, 3) if args.quick else args.repeats
    sources = min(args.tokens, args.sources, 16 if args.quick else args.tokens)
    cases = dict(list(attentions(args.tokens, args.seed))[: 2 if args.quick else None])
    # numbers must not be cut off in a file or a narrow terminal
    console = Console(width=max(Console().width, 136))
    rows: list[dict[str, Any]] = []
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("measuring", total=2 * len(cases))
        for name, weights in cases.items():
            progress.update(task, description=f"second eigenvalue, {name}")
            rows.append({"attention": name, **measure_gap(weights, repeats)})
            progress.advance(task)
        for row, weights in zip(rows, cases.values(), strict=True):
            progress.update(task, description=f"hops, {row['attention']}")
            row |= measure_hops(weights, repeats, sources)
            progress.advance(task)
    about = machine("numpy", "scipy")
    show(console, rows, about, args.tokens, sources)
    if args.json:
        args.json.write_text(json.dumps({"machine": about, "tokens": args.tokens, "rows": rows}, indent=2) + "\n")
    return 0 if all(row["gap_agrees"] and row["hops_agree"] for row in rows) else 1


@contextmanager
def thread_limit(threads: int) -> Iterator[None]:
    """Limit torch and every BLAS library to this many threads; 0 changes nothing."""
    if not threads:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        with threadpool_limits(threads):
            yield
    finally:
        torch.set_num_threads(before)


def attentions(n: int, seed: int) -> Iterator[tuple[str, Tensor]]:
    """Yield the name and (n, n) float32 weights of each attention of random tokens."""
    generator = torch.Generator().manual_seed(seed)
    q, other = (torch.randn(n, HEAD_DIM, generator=generator) for _ in range(2))
    # keys of an untied projection: related to the queries, but not equal to them
    mixed = q @ torch.randn(HEAD_DIM, HEAD_DIM, generator=generator) / math.sqrt(HEAD_DIM)
    for tie, k in (("tied", q), ("untied", mixed), ("unrelated", other)):
        yield f"FNA 1.2 text kappa, {tie}", attention_weights(q, k, alpha=1.2, kappa="text")
        yield f"FNA 1.2 kappa d_H, {tie}", attention_weights(q, k, alpha=1.2, kappa="vision")
        yield f"local alpha 2, {tie}", attention_weights(q, k, alpha=2.0)
        yield f"dot-product, {tie}", (q @ k.mT / math.sqrt(HEAD_DIM)).softmax(dim=-1)


def measure_gap(weights: Tensor, repeats: int) -> dict[str, Any]:
    """Compare the second eigenvalue modulus and its time with NumPy's eig and eigvals and with ARPACK's defaults."""
    array = weights.double().numpy()
    reference = float(np.sort(np.abs(np.linalg.eig(array)[0]))[-2])
    second = 1.0 - spectral_gap(weights, method="iterative").item()
    row: dict[str, Any] = {
        "second_eigenvalue": second,
        "gap_difference": abs(second - reference),
        "gap_agrees": abs(second - reference) <= GAP_AGREEMENT,
    }
    if row["gap_agrees"]:
        times = alternate(
            {
                "gap_ms": lambda: spectral_gap(weights, method="iterative"),
                "eig_ms": lambda: np.linalg.eig(array),
                "eig32_ms": lambda: np.linalg.eig(weights.numpy()),
                "eigvals_ms": lambda: np.linalg.eigvals(array),
                "arpack_ms": lambda: eigs(array, k=2, return_eigenvectors=False),
            },
            repeats,
        )
        ratios = {f"{name}_ratio": times[f"{name}_ms"] / times["gap_ms"] for name in EIGENVALUE_BASELINES}
        row |= times | ratios
    return row


def measure_hops(weights: Tensor, repeats: int, sources: int) -> dict[str, Any]:
    """Compare all hops and their time with networkx, which starts from ``sources`` tokens."""
    paths = path_lengths(weights)
    started = time.perf_counter()
    expected = hops_by_networkx(weights, sources)
    networkx_ms = 1e3 * (time.perf_counter() - started) * len(weights) / sources
    row: dict[str, Any] = {
        "mean_hops": paths.mean.item(),
        "max_hops": paths.max.item(),
        "hops_agree": bool((paths.hops[:sources] == expected).all()),
    }
    if row["hops_agree"]:
        times = alternate({"hops_ms": lambda: path_lengths(weights)}, repeats)
        row |= times | {"networkx_ms": networkx_ms, "networkx_ratio": networkx_ms / times["hops_ms"]}
    return row


def hops_by_networkx(weights: Tensor, sources: int) -> Tensor:
    """Return the (sources, n) hops by networkx's Dijkstra, building the graph included."""
    import networkx as nx

    values = weights.double().tolist()
    graph = nx.DiGraph()
    graph.add_weighted_edges_from(
        (i, j, 1.0 / weight) for i, row in enumerate(values) for j, weight in enumerate(row) if i != j and weight > 0
    )
    hops = torch.full((sources, len(values)), -1, dtype=torch.int32)
    for i in range(sources):
        for j, path in nx.single_source_dijkstra_path(graph, i).items():
            hops[i, j] = len(path) - 1
    return hops


def alternate(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the median milliseconds of each call, timed in turns so that other load affects all of them equally.

    A turn repeats a call until ``TURN_SECONDS`` have passed, at least once, so that a short call is not dominated by
    the cold caches that the previous one left behind.
    """
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(repeats):
        for name, call in calls.items():
            count, started = 0, time.perf_counter()
            while count == 0 or time.perf_counter() - started < TURN_SECONDS:
                call()
                count += 1
            times[name].append(1e3 * (time.perf_counter() - started) / count)
    return {name: statistics.median(values) for name, values in times.items()}


def show(console: Console, rows: list[dict[str, Any]], about: dict[str, str | int], tokens: int, sources: int) -> None:
    """Print the two tables; where results disagree, DISAGREES replaces the times."""
    print(", ".join(f"{name} {value}" for name, value in about.items()))
    print(f"second eigenvalue of one {tokens}-token matrix of float32 weights, median ms and speedups")
    speedups = [f"over {label}" for label in EIGENVALUE_BASELINES.values()]
    gaps = table("attention", "|lambda_2|", "error", "spectral_gap", "eig", *speedups)
    for row in rows:
        numbers = ["DISAGREES"]
        if row["gap_agrees"]:
            ratios = [f"{row[f'{name}_ratio']:.1f} x" for name in EIGENVALUE_BASELINES]
            numbers = [f"{row['gap_ms']:.4g}", f"{row['eig_ms']:.4g}", *ratios]
        gaps.add_row(row["attention"], f"{row['second_eigenvalue']:.6f}", f"{row['gap_difference']:.0e}", *numbers)
    console.print(gaps)
    scaled = "" if sources == tokens else f" (networkx from {sources} tokens, scaled by {tokens / sources:g})"
    print(f"all-pairs hops of {tokens} tokens, median ms{scaled}")
    hops = table("attention", "mean hops", "max", "path_lengths", "networkx", "speedup")
    for row in rows:
        numbers = ["DISAGREES"]
        if row["hops_agree"]:
            numbers = [f"{row['hops_ms']:.4g}", f"{row['networkx_ms']:.0f}", f"{row['networkx_ratio']:.0f} x"]
        hops.add_row(row["attention"], f"{row['mean_hops']:.3f}", f"{row['max_hops']}", *numbers)
    console.print(hops)


def table(first: str, *others: str) -> Table:
    """Return an empty table whose first column is left-aligned and whose other columns are right-aligned."""
    empty = Table(first)
    for column in others:
        empty.add_column(column, justify="right", no_wrap=True)
    return empty
