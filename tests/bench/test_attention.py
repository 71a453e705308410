"""`bench attention`: it measures only what is right, in one run, and writes down what it measured."""

import argparse
import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Fractional
from fna_lightning.attention.kernels import available_kernels
from fna_lightning.bench.attention import BASE, COMPETITORS, PLAIN, SHAPES, Competitor, Shape, check
from fna_lightning.bench.memory import growth
from fna_lightning.bench.plot import slope
from fna_lightning.bench.timing import take_turns
from fna_lightning.commands import bench, bench_attention

SMALL = [Shape("ViT", 1, 2, 20, 8), Shape("long", 1, 1, 64, 8), Shape("long", 1, 1, 128, 8, causal=True)]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


def test_one_run_writes_table_json_and_plot(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(bench_attention, "QUICK_SHAPES", SMALL)
    chosen = {name: COMPETITORS[name] for name in COMPETITORS if name in (BASE, PLAIN) or name.startswith("FNA, ")}
    monkeypatch.setattr(bench_attention, "COMPETITORS", chosen)
    monkeypatch.setattr(bench_attention, "growth", lambda name, sizes, threads: float(sizes[2]))
    files = tmp_path / "bench.json", tmp_path / "bench.png"
    args = parsed("attention", "--quick", "--seconds", "0.01", "--json", str(files[0]), "--plot", str(files[1]))
    assert bench.run(args) == 0
    document = json.loads(files[0].read_text())
    assert document["machine"]["torch"] == torch.__version__
    assert {row["competitor"] for row in document["rows"]} == set(chosen)
    assert {row["shape"] for row in document["rows"]} == set(map(str, SMALL))
    for row in document["rows"]:
        assert row["forward ms"] > 0.0
        assert row["forward+backward ms"] > 0.0
        assert row["forward ratio"] == 1.0 or row["competitor"] != BASE
    assert document["against n"]["memory growth, MB"][BASE] == {"64": 64.0, "128": 128.0}
    assert files[1].read_bytes().startswith(b"\x89PNG")
    shown = capsys.readouterr()
    assert "long 1x1x128x8 causal" in shown.out
    assert "slope 1.00" in shown.out
    assert "[bench] long" in shown.err


def test_every_kernel_that_runs_here_competes() -> None:
    running = {name for name, state in available_kernels().items() if state == "ok"} - {"sdpa"}
    assert {f"FNA, {name}" for name in running} <= set(COMPETITORS)
    assert "FNA alpha=2, sdpa" in COMPETITORS


def test_the_issues_shapes_are_measured() -> None:
    sizes = {(*shape.sizes, shape.causal) for shape in SHAPES}
    assert (16, 8, 512, 32, False) in sizes
    assert (32, 8, 30, 64, True) in sizes
    assert {length for _, _, length, _, _ in sizes} >= {1024, 4096, 16384}


@pytest.mark.parametrize("name", COMPETITORS)
def test_every_competitor_is_right(name) -> None:
    for shape in (SMALL[0], SMALL[2]):
        errors = check(name, shape)
        assert set(errors) == {"output", "gradient"}


def test_a_wrong_competitor_is_not_timed(monkeypatch) -> None:
    right = COMPETITORS["FNA, reference"]
    monkeypatch.setitem(COMPETITORS, "bent", replace(right, attend=lambda *args: 1.001 * right.attend(*args)))
    with pytest.raises(RuntimeError, match=r"bent at ViT 1x2x20x8: output is wrong by .*; not timed"):
        check("bent", SMALL[0])


def test_a_wrong_gradient_is_not_timed(monkeypatch) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return Fractional(1.2, kernel="reference")(q, k.detach() + 0.5 * (k - k.detach()), v, is_causal=causal)

    monkeypatch.setitem(COMPETITORS, "bent", Competitor(Fractional(1.2), attend))
    with pytest.raises(RuntimeError, match="gradient is wrong by"):
        check("bent", SMALL[0])


def test_turns_are_taken_in_order() -> None:
    calls: list[str] = []
    times = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=10.0, rounds=3)
    assert calls == ["a", "b"] * 4
    assert set(times) == {"a", "b"}


def test_slope_is_the_power() -> None:
    assert slope({10: 3.0, 100: 300.0, 1000: 30000.0}) == pytest.approx(2.0)
    assert slope({10: 3.0}) is None
    assert slope({10: 0.0, 20: 1.0}) is None


def test_memory_grows_with_the_weights_that_are_stored() -> None:
    grown = growth(PLAIN, (1, 1, 2048, 8), threads=1)
    if grown is None:
        pytest.skip("this system does not tell the peak of a process")
    # distances, kernel, weights and their gradients: several matrices of 16 MB
    assert grown > 32.0
    if available_kernels()["cpu"] == "ok":
        assert growth("FNA, cpu", (1, 1, 2048, 8), threads=1) < 8.0


def test_memory_of_nothing_known_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"memory of nobody at .* failed"):
        growth("nobody", (1, 1, 8, 8), threads=1)


def test_threads_must_be_positive() -> None:
    with pytest.raises(ValueError, match="--threads must be at least 1, got 0"):
        bench.run(parsed("attention", "--threads", "0"))
