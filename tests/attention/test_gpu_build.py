"""Ahead-of-time builds of the Triton kernels keep their limits: registers, spills, shared memory, instructions."""

import json
import os
import subprocess
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from fna_lightning.bench.gpu_build import DTYPES, PARTS, WIDTHS, all_exceeded
from fna_lightning.bench.gpu_compile import TARGETS
from fna_lightning.bench.gpu_limits import exceeded
from fna_lightning.bench.gpu_table import Row, markdown

PAGE = Path(__file__).parents[2] / "docs" / "results" / "gpu_build.md"
needs_triton = pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
# float32 of width 128 has too many registers for NVIDIA GPUs: three products in TF32 take twice the operands
SPILLS = {f"{target} fp32 128 {part}" for target in ("sm_80", "sm_90") for part in PARTS}


def rows(document: dict[str, Any]) -> list[Row]:
    """Return the rows of a JSON document of the benchmark."""
    entries = [{key: value for key, value in entry.items() if key != "limit"} for entry in document["kernels"]]
    return [Row(**entry | {"tile": tuple(entry["tile"])}) for entry in entries]


def committed() -> dict[str, Any]:
    """Return the JSON document in docs/results."""
    return json.loads(PAGE.with_suffix(".json").read_text())


def build(folder: Path, *options: str) -> dict[str, Any]:
    """Run the benchmark in a process of its own, without the interpreter, and return its JSON document."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    command = ["-P", "-m", "fna_lightning.cli", "bench", "gpu-build", *options, "--json", str(folder / "build.json")]
    result = subprocess.run(
        [sys.executable, *command],
        env=environment | {"TRITON_CACHE_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
    return json.loads((folder / "build.json").read_text())


def assert_limits(document: dict[str, Any]) -> None:
    """Check that only the known kernels exceed a limit, and that this limit is the one on spills."""
    built = {f"{row.target} {row.dtype} {row.width} {row.part}" for row in rows(document)}
    failures = all_exceeded(rows(document))
    assert [failure for failure in failures if "spilled bytes" not in failure] == []
    assert {failure.partition(":")[0] for failure in failures} == SPILLS & built


def assert_same(document: dict[str, Any]) -> None:
    """Compare the counts with those of the page, if they are of the same compiler."""
    if document["versions"]["triton"] != committed()["versions"]["triton"]:
        return
    recorded = {(row.target, row.dtype, row.width, row.part): row for row in rows(committed())}
    for row in rows(document):
        other = recorded[row.target, row.dtype, row.width, row.part]
        assert (row.tile, row.warps, row.registers) == (other.tile, other.warps, other.registers)
        assert row.instructions == pytest.approx(other.instructions)
        assert row.special == pytest.approx(other.special)


def test_the_page_has_every_kernel_within_its_limits() -> None:
    document = committed()
    cases = {(row.target, row.dtype, row.width, row.part) for row in rows(document)}
    assert len(cases) == len(TARGETS) * len(DTYPES) * len(WIDTHS) * len(PARTS)
    assert_limits(document)


def test_the_page_is_what_the_tool_writes() -> None:
    document = committed()
    command = "fna-lightning bench gpu-build"
    page = markdown(rows(document), command, document["versions"], all_exceeded(rows(document)))
    assert page == PAGE.read_text()


@needs_triton
def test_quick_builds_keep_the_limits(tmp_path: Path) -> None:
    document = build(tmp_path, "--quick")
    assert document["versions"]["triton"] == version("triton")
    assert {row.part for row in rows(document)} == {"forward", "dq"}
    assert_limits(document)
    assert_same(document)


@needs_triton
@pytest.mark.gpu_build
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("target", TARGETS)
def test_all_builds_keep_the_limits(target: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    if "gpu_build" not in request.config.getoption("-m"):
        pytest.skip("takes minutes; run it with -m gpu_build")
    document = build(tmp_path, "--target", target)
    assert_limits(document)
    assert_same(document)


def test_limits_are_named() -> None:
    row = rows(committed())[0]
    broken = Row(**{**vars(row), "registers": 300, "spill_bytes": 100, "special": 6.0, "libdevice_log": True})
    assert [failure.partition(": ")[2] for failure in exceeded(broken)][:4] == [
        "300 registers, at most 255",
        "100 spilled bytes, at most 0",
        "6 special functions per pair, at most 3.2",
        "1 libdevice logarithms per pair, at most 0",
    ]
