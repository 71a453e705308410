"""`bench attention`: only correct implementations are timed, and all measurements are written."""

import argparse
import json
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from fna_lightning.attention import Fractional
from fna_lightning.attention.kernels import available_kernels
from fna_lightning.bench import attention as bench_attention
from fna_lightning.bench import attention_timing
from fna_lightning.bench.attention_timing import check
from fna_lightning.bench.competitors import BASELINE, COMPETITORS, PLAIN, SHAPES, Competitor, Shape
from fna_lightning.bench.memory import peak_growth
from fna_lightning.bench.plot import slope
from fna_lightning.bench.timing import take_turns
from fna_lightning.commands import bench

pytestmark = pytest.mark.e2e

SMALL = [Shape("ViT", 1, 2, 20, 8), Shape("long", 1, 1, 64, 8), Shape("long", 1, 1, 128, 8, causal=True)]


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(words)


def test_a_run_writes_table_json_and_plot(monkeypatch, tmp_path, capsys) -> None:
    monkeypatch.setattr(bench_attention, "QUICK_SHAPES", SMALL)
    chosen = {name: COMPETITORS[name] for name in COMPETITORS if name in (BASELINE, PLAIN) or name.startswith("FNA, ")}
    monkeypatch.setattr(bench_attention, "COMPETITORS", chosen)
    monkeypatch.setattr(attention_timing, "peak_growth", lambda name, sizes, threads: float(sizes[2]))
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
        assert row["forward ratio"] == 1.0 or row["competitor"] != BASELINE
    assert document["against n"]["memory growth, MB"][BASELINE] == {"64": 64.0, "128": 128.0}
    assert files[1].read_bytes().startswith(b"\x89PNG")
    output = capsys.readouterr()
    assert "long 1x1x128x8 causal" in output.out
    assert "slope 1.00" in output.out
    assert "[bench] long" in output.err


def test_every_available_kernel_is_measured() -> None:
    available = {name for name, state in available_kernels().items() if state == "ok"} - {"sdpa"}
    assert {f"FNA, {name}" for name in available} <= set(COMPETITORS)
    assert "FNA alpha=2, sdpa" in COMPETITORS


def test_shapes_of_the_tasks_are_measured() -> None:
    sizes = {(*shape.sizes, shape.causal) for shape in SHAPES}
    assert (16, 8, 512, 32, False) in sizes
    assert (32, 8, 30, 64, True) in sizes
    assert {shape.key_sizes for shape in SHAPES} >= {(16, 4, 64, 8), (16, 4, 1024, 8)}
    assert {length for _, _, length, _, _ in sizes} >= {1024, 4096, 16384}


@pytest.mark.parametrize("name", COMPETITORS)
def test_every_competitor_is_correct(name) -> None:
    for shape in (SMALL[0], SMALL[2], Shape("fields", 1, 2, 8, 8, keys=40)):
        errors = check(name, shape)
        assert set(errors) == {"output", "gradient"}
        assert max(errors.values()) < 1e-2


def test_a_wrong_competitor_is_not_timed(monkeypatch) -> None:
    correct = COMPETITORS["FNA, reference"]
    monkeypatch.setitem(COMPETITORS, "wrong", replace(correct, attend=lambda *args: 1.001 * correct.attend(*args)))
    with pytest.raises(RuntimeError, match=r"wrong at ViT 1x2x20x8: the error of the output is .*; it is not timed"):
        check("wrong", SMALL[0])


def test_a_wrong_gradient_is_not_timed(monkeypatch) -> None:
    def attend(q: Tensor, k: Tensor, v: Tensor, causal: bool) -> Tensor:
        return Fractional(1.2, kernel="reference")(q, k.detach() + 0.5 * (k - k.detach()), v, is_causal=causal)

    monkeypatch.setitem(COMPETITORS, "wrong", Competitor(Fractional(1.2), attend))
    with pytest.raises(RuntimeError, match="the error of the gradient is"):
        check("wrong", SMALL[0])


def test_functions_take_turns() -> None:
    calls: list[str] = []
    times = take_turns({"a": lambda: calls.append("a"), "b": lambda: calls.append("b")}, seconds=10.0, rounds=3)
    assert calls == ["a", "b"] * 4
    assert set(times) == {"a", "b"}


def test_slope_is_the_exponent() -> None:
    assert slope({10: 3.0, 100: 300.0, 1000: 30000.0}) == pytest.approx(2.0)
    assert slope({10: 3.0}) is None
    assert slope({10: 0.0, 20: 1.0}) is None


def test_storing_the_weights_takes_memory() -> None:
    megabytes = peak_growth(PLAIN, (1, 1, 2048, 8), threads=1)
    if megabytes is None:
        pytest.skip("needs /proc to read the peak memory of a process")
    # Distances, kernel, weights and their gradients are several matrices of 16 MB.
    assert megabytes > 32.0
    if available_kernels()["cpu"] == "ok":
        assert peak_growth("FNA, cpu", (1, 1, 2048, 8), threads=1) < 8.0


def test_memory_of_an_unknown_competitor_is_an_error() -> None:
    with pytest.raises(RuntimeError, match=r"memory of unknown at .* failed"):
        peak_growth("unknown", (1, 1, 8, 8), threads=1)


def test_threads_must_be_positive() -> None:
    with pytest.raises(ValueError, match="--threads must be at least 1, got 0"):
        bench.run(parsed("attention", "--threads", "0"))
