"""`bench attention --device cuda`, tested on the CPU: wrong kernels are not timed, and everything is written."""

import argparse
import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from fna_lightning.attention import Fractional
from fna_lightning.attention.kernels import KERNELS, Call
from fna_lightning.attention.kernels.reference import Reference
from fna_lightning.bench import attention, gpu, gpu_cases
from fna_lightning.bench.competitors import BASELINE
from fna_lightning.bench.device_timer import ClockTimer, CudaTimer, repeats
from fna_lightning.bench.gpu_cases import Case, Implementation, implementations, timed_cases
from fna_lightning.bench.roofline import PEAKS, find_peak, shortest_ms
from fna_lightning.commands import bench
from fna_lightning.errors import UsageError

CPU = torch.device("cpu")
SMALL = Case(20, 8, batch=1)


class CountingTimer(ClockTimer):
    """Counts what is timed."""

    def __init__(self) -> None:
        self.timed = 0

    def milliseconds(self, function: Callable[[], object], seconds: float) -> float:
        self.timed += 1
        function()
        return 2.0 * self.timed

    def peak_megabytes(self, function: Callable[[], object]) -> float | None:
        function()
        return 3.0


def parsed(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    bench.add_arguments(parser)
    return parser.parse_args(["attention", *words])


class Wrong(Reference):
    name = "wrong"

    def run(self, call: Call) -> torch.Tensor:
        return 1.01 * super().run(call)


class NotANumber(Reference):
    name = "nan"

    def run(self, call: Call) -> torch.Tensor:
        return torch.nan * super().run(call)


class Crash(Reference):
    name = "crash"

    def run(self, call: Call) -> torch.Tensor:
        raise RuntimeError("out of resources:\nshared memory")


class Refusing(Reference):
    name = "refusing"

    def refusal(self, call: Call) -> str | None:
        return "it has no dropout" if call.dropout else None


@pytest.fixture
def bad_kernels(monkeypatch: pytest.MonkeyPatch) -> list[Implementation]:
    for kernel in (Wrong(), NotANumber(), Crash(), Refusing()):
        monkeypatch.setitem(KERNELS, kernel.name, kernel)
    return implementations(("wrong", "nan", "crash", "refusing", "chunked", "not installed"))


def test_only_correct_kernels_are_timed(bad_kernels: list[Implementation], capsys: pytest.CaptureFixture[str]) -> None:
    timer = CountingTimer()
    cases = [SMALL, replace(SMALL, dropout=0.1)]
    rows = gpu.measure(cases, bad_kernels, CPU, timer, seconds=0.0, peak=PEAKS["A100", "80GB"])
    by_name = {row["implementation"]: row for row in rows[: len(bad_kernels)]}
    assert set(by_name) == {
        BASELINE,
        "FNA alpha=2, sdpa",
        *(f"FNA, {k}" for k in ["wrong", "nan", "crash", "refusing", "chunked"]),
    }
    for name, problem in (("wrong", "the error of the output is 1.0e-02"), ("nan", "the error of the output is nan")):
        assert problem in by_name[f"FNA, {name}"]["wrong"]
        assert "forward ms" not in by_name[f"FNA, {name}"]
    assert by_name["FNA, crash"]["failed"] == "out of resources: shared memory"
    for name in (BASELINE, "FNA, refusing", "FNA, chunked", "FNA alpha=2, sdpa"):
        row = by_name[name]
        assert row["forward+backward ratio"] == row["forward+backward ms"] / by_name[BASELINE]["forward+backward ms"]
        assert row["forward MB"] == 3.0
        assert row["first call s"] > 0.0
        assert 0.0 < row["forward roofline"] < 1.0
    refused = next(row for row in rows if row["implementation"] == "FNA, refusing" and row["dropout"])
    assert refused["refused"] == "it has no dropout"
    # four correct ones, and three at the case that one refuses, each forward and with the backward pass
    assert timer.timed == 2 * (4 + 3)
    output = capsys.readouterr().out
    assert "FNA, wrong           wrong: the error of the output" in output
    assert "% of the roofline, 3 MB" in output


def test_wrong_dropout_is_not_timed() -> None:
    implementation = Implementation("FNA, chunked", Fractional(1.2), "chunked")
    assert gpu_cases.check(implementation, replace(SMALL, dropout=0.1), CPU)["dropout"] < 0.03

    class NoRescaling(Implementation):
        def attend(self, *args: object) -> torch.Tensor:
            return (0.9 if args[-1].dropout else 1.0) * super().attend(*args)

    with pytest.raises(ArithmeticError, match=r"the error of the dropout is .*, which exceeds 3e-02"):
        gpu_cases.check(NoRescaling(*vars(implementation).values()), replace(SMALL, dropout=0.1), CPU)


@pytest.mark.parametrize("mask", gpu_cases.MASKS)
@pytest.mark.parametrize("kind", gpu_cases.TOLERANCE)
def test_kernels_are_correct_in_every_case(kind: tuple[torch.dtype, str], mask: str) -> None:
    for implementation in implementations(("chunked", "reference")):
        errors = gpu_cases.check(implementation, Case(70, 8, *kind, mask=mask), CPU)
        assert set(errors) == {"output", "gradient"}


def test_all_cases_of_the_specification_are_timed() -> None:
    cases = timed_cases(quick=False)
    assert {case.length for case in cases} >= {128, 512, 2048, 16384}
    assert {case.width for case in cases} == {32, 64, 128}
    assert {(case.dtype, case.precision) for case in cases} == set(gpu_cases.TOLERANCE)
    assert {case.mask for case in cases} == set(gpu_cases.MASKS)
    assert any(case.dropout for case in cases)
    assert {str(case) for case in timed_cases(quick=True)} >= {"4x8x4096x64 bfloat16", "32x8x512x64 float32 high"}
    assert len({str(case) for case in cases}) == len(cases)


def test_the_roofline_is_the_slowest_of_three_limits() -> None:
    peak = find_peak("NVIDIA A100-SXM4-80GB")
    assert peak is not None
    options = {"precision": "highest", "causal": False, "backward": False}
    sizes = (16, 8, 512, 32)
    pairs = 16 * 8 * 512 * 512
    # special functions: 3 a pair, 16 a clock and SM
    limit = shortest_ms(peak, sizes, torch.bfloat16, special=True, **options)
    assert limit == pytest.approx(1e3 * 3 * pairs / (16 * 108 * 1.41e9))
    # matrix products in float32: three TF32 products
    limit = shortest_ms(peak, sizes, torch.float32, special=False, **options)
    assert limit == pytest.approx(1e3 * 4 * 32 * pairs / 52e12)
    # memory: one key
    limit = shortest_ms(peak, (16, 8, 1, 32), torch.bfloat16, special=True, **options)
    assert limit == pytest.approx(1e3 * 4 * 16 * 8 * 32 * 2 / 1.935e12)
    causal = shortest_ms(peak, sizes, torch.bfloat16, special=True, **options | {"causal": True})
    assert causal == pytest.approx(0.5e3 * 3 * pairs / (16 * 108 * 1.41e9))
    assert find_peak("GeForce 256") is None


def test_the_precision_is_set_and_restored() -> None:
    before = torch.get_float32_matmul_precision()
    with gpu.matmul_precision("high"):
        assert torch.get_float32_matmul_precision() == "high"
    assert torch.get_float32_matmul_precision() == before


def test_the_median_of_cuda_events_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    times = iter([1.0, 5.0, 7.0, 6.0, 9.0, 100.0])

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            calls.append("record")

        def elapsed_time(self, end: "Event") -> float:
            return next(times)

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: calls.append("synchronize"))
    assert CudaTimer().milliseconds(lambda: calls.append("call"), seconds=0.0) == 7.0
    assert calls[:3] == ["call"] * 3
    assert calls[3:7] == ["record", "call", "record", "synchronize"]
    assert calls.count("synchronize") == 2


def test_repeats() -> None:
    assert repeats(1.0, 0.1) == 100
    assert repeats(1e-9, 1.0) == 200
    assert repeats(1e9, 1.0) == 5


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_there_is_one_clear_sentence() -> None:
    with pytest.raises(UsageError, match="--device cuda needs a GPU, and PyTorch sees none here"):
        bench.run(parsed("--device", "cuda"))


def test_options_of_the_cpu_are_refused() -> None:
    with pytest.raises(ValueError, match="--plot and --keep-memory measure the CPU; leave them out"):
        bench.run(parsed("--check-only", "--plot", "x.png"))


def test_kernels_are_checked_without_timing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "check.json"
    assert bench.run(parsed("--check-only", "--json", str(file))) == 0
    document = json.loads(file.read_text())
    assert document["peak"] == "unknown GPU: no roofline"
    assert document["machine"]["torch"] == torch.__version__
    assert {row["implementation"] for row in document["rows"]} >= {BASELINE, "FNA, chunked"}
    assert all("forward ms" not in row and "wrong" not in row for row in document["rows"])
    assert "combinations are correct" in capsys.readouterr().out


def test_a_wrong_kernel_makes_the_command_fail(bad_kernels: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gpu_cases, "KERNEL_NAMES", ("wrong",))
    monkeypatch.setattr(attention.gpu_cases, "interpreted_cases", lambda: [SMALL])
    assert bench.run(parsed("--check-only")) == 1


def test_a_kernel_that_must_be_named_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    # "auto" never takes Triton's interpreter, so the check of the Triton kernel must ask for it.
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    monkeypatch.setattr(KERNELS["triton"], "unavailable", lambda: None)
    _, triton, _ = implementations(("triton",))
    assert triton.attention.kernel == "triton"
    assert triton.refusal(SMALL, CPU) is None
