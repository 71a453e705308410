"""``bench analysis``: agreement of results, speedups, machine description, JSON."""

import argparse
import json
from pathlib import Path

import pytest
import torch

from fna_lightning.bench import analysis as bench_analysis


def bench(*arguments: str) -> int:
    parser = argparse.ArgumentParser()
    bench_analysis.add_arguments(parser)
    return bench_analysis.run(parser.parse_args(arguments))


@pytest.fixture(autouse=True)
def short_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_analysis, "TURN_SECONDS", 0.0)


def test_ratios_are_printed_and_written_with_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "150")
    threads = torch.get_num_threads()
    assert bench("--tokens", "20", "--quick", "--json", str(tmp_path / "out.json")) == 0
    assert torch.get_num_threads() == threads
    printed = capsys.readouterr().out
    assert "networkx from 16 tokens, scaled by 1.25" in printed
    written = json.loads((tmp_path / "out.json").read_text())
    assert written["machine"]["torch"] == torch.__version__
    assert len(written["rows"]) == 2
    for row in written["rows"]:
        assert row["attention"] in printed
        for name in ("eig", "eig32", "eigvals", "arpack"):
            assert row[f"{name}_ratio"] == pytest.approx(row[f"{name}_ms"] / row["gap_ms"])
        assert row["networkx_ratio"] == pytest.approx(row["networkx_ms"] / row["hops_ms"])


def test_no_time_is_printed_if_results_disagree(
    capsys: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(bench_analysis, "spectral_gap", lambda *_, **__: torch.tensor(0.123))
    assert bench("--tokens", "20", "--quick", "--json", str(tmp_path / "out.json")) == 1
    assert "DISAGREES" in capsys.readouterr().out
    assert all("gap_ms" not in row for row in json.loads((tmp_path / "out.json").read_text())["rows"])


def test_invalid_sizes(capsys: pytest.CaptureFixture) -> None:
    assert bench("--tokens", "1") == 2
    assert "needs --tokens >= 2" in capsys.readouterr().out
