"""`reproduce`: one report, no work is repeated, and a failing artifact does not stop the others."""

import asyncio
import dataclasses
import json
import os
from pathlib import Path

import pytest

from fna_lightning.cli import main
from fna_lightning.reproduction.artifact import Result, Row, Table
from fna_lightning.reproduction.artifacts import all_artifacts, fig_path, fig_tokens
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.markdown import markdown_page
from fna_lightning.reproduction.page import html_page
from fna_lightning.reproduction.scales import SCALES, SMOKE

from helpers.browser import CHROMIUM, browser

pytestmark = pytest.mark.e2e

HOSTILE = "<script>alert(1)</script> | `x` {{y}} <img src=x onerror=alert(2)>"


def reproduce(folder: Path, *words: str) -> tuple[int, dict]:
    code = main(["reproduce", *words, "--out", str(folder), "--workers", "1"])
    return code, json.loads((folder / "report.json").read_text())


def test_artifacts_are_run_once(tmp_path, capsys) -> None:
    code, report = reproduce(tmp_path, "fig-spectrum", "prop-1", "--json", str(tmp_path / "copy.json"))
    assert code == 0
    assert json.loads((tmp_path / "copy.json").read_text()) == report
    assert [artifact["verdicts"] for artifact in report["artifacts"]] == [{"reproduced": 6}, {"reproduced": 4}]
    assert "fig-spectrum: done" in capsys.readouterr().out
    stamp = os.stat(tmp_path / "artifacts/fig-spectrum/result.json").st_mtime_ns
    assert reproduce(tmp_path, "fig-spectrum", "prop-1")[1] == report
    assert "fig-spectrum: done" not in capsys.readouterr().out
    assert os.stat(tmp_path / "artifacts/fig-spectrum/result.json").st_mtime_ns == stamp


def test_a_failing_artifact_is_reported_and_the_others_run(tmp_path, monkeypatch) -> None:
    def fail(context: Context) -> Result:
        raise RuntimeError(HOSTILE)

    original = fig_tokens.ARTIFACT
    monkeypatch.setattr(fig_tokens, "ARTIFACT", dataclasses.replace(original, run=fail))
    code, report = reproduce(tmp_path, "fig-tokens", "prop-1")
    assert code == 1
    first, second = report["artifacts"]
    assert first["error"] == f"RuntimeError: {HOSTILE}"
    assert first["verdicts"] == {"not run": 1}
    assert second["verdicts"] == {"reproduced": 4}
    assert "<script>" not in (tmp_path / "report.html").read_text()
    assert "failed: RuntimeError" in (tmp_path / "report.html").read_text()
    # A failed artifact is run again the next time.
    monkeypatch.setattr(fig_tokens, "ARTIFACT", original)
    code, report = reproduce(tmp_path, "fig-tokens", "prop-1")
    assert code == 0
    assert report["artifacts"][0]["verdicts"] == {"reproduced": 3}


def test_ctrl_c_writes_a_report_and_the_next_call_continues(tmp_path, monkeypatch) -> None:
    def interrupt(context: Context) -> Result:
        raise KeyboardInterrupt

    original = fig_tokens.ARTIFACT
    monkeypatch.setattr(fig_tokens, "ARTIFACT", dataclasses.replace(original, run=interrupt))
    code, report = reproduce(tmp_path, "fig-spectrum", "fig-tokens")
    assert code == 130
    assert [bool(artifact["rows"]) for artifact in report["artifacts"]] == [True, False]
    monkeypatch.setattr(fig_tokens, "ARTIFACT", original)
    stamp = os.stat(tmp_path / "artifacts/fig-spectrum/result.json").st_mtime_ns
    code, report = reproduce(tmp_path, "fig-spectrum", "fig-tokens")
    assert code == 0
    assert all(artifact["rows"] for artifact in report["artifacts"])
    assert os.stat(tmp_path / "artifacts/fig-spectrum/result.json").st_mtime_ns == stamp


def test_runs_of_an_artifact_are_trained_once(tmp_path, monkeypatch, capsys) -> None:
    """A reduced smoke run: two models, one figure."""
    tiny = SMOKE.with_settings((("data.train_size", "64"), ("data.eval_size", "32"), ("trainer.max_epochs", "1")))
    monkeypatch.setitem(SCALES, "smoke", tiny)
    chosen = {name: cells for name, cells in fig_path.tied_cells(tiny).items() if name in ("fna", "dp")}
    few = [cell for cells in chosen.values() for cell in cells]
    monkeypatch.setattr(fig_path, "tied_cells", lambda _: chosen)
    monkeypatch.setattr(fig_path, "ARTIFACT", dataclasses.replace(fig_path.ARTIFACT, cells=lambda _: few))
    code, report = reproduce(tmp_path, "fig-path")
    assert code == 0, capsys.readouterr().out
    assert report["runs"]["finished"] == report["runs"]["needed"] == 2
    (table,) = report["artifacts"][0]["tables"]
    assert [line[0] for line in table["lines"]] == ["FNA (alpha = 1.2)", "DP"]
    assert all(int(line[1]) >= 1 for line in table["lines"])
    capsys.readouterr()
    assert reproduce(tmp_path, "fig-path")[0] == 0
    output = capsys.readouterr().out
    assert "2 runs in" in output
    assert "0 to do here" in output
    assert "fig-path: done" not in output


def test_no_train_reports_missing_runs(tmp_path) -> None:
    code, report = reproduce(tmp_path, "fig-hops", "table-imdb", "--scale", "small", "--no-train")
    assert code == 0
    hops, table = report["artifacts"]
    assert {row["verdict"] for row in hops["rows"]} == {"not run"}
    assert hops["rows"][0]["reason"].endswith("has not been trained")
    assert "needs --scale paper" in table["not_run"]
    assert not (tmp_path / "runs").exists()


def test_list_and_usage_errors(tmp_path, capsys) -> None:
    assert main(["reproduce", "--list", "--scale", "small"]) == 0
    output = capsys.readouterr().out
    assert all(name in output for name in all_artifacts())
    assert "needs --scale paper" in " ".join(output.replace("│", " ").split())
    assert main(["reproduce", "fig-9"]) == 2
    assert "unknown artifact 'fig-9'; choose from fig-spectrum" in capsys.readouterr().err
    assert main(["reproduce", "prop-1", "--workers", "0"]) == 2
    assert "--workers must be at least 1, got 0" in capsys.readouterr().err


def hostile_report(folder: Path) -> dict:
    reproduce(folder, "fig-tokens")
    report = json.loads((folder / "report.json").read_text())
    row = dataclasses.asdict(Row(HOSTILE, 1.0, 2.0, reason=HOSTILE))
    report["title"] = HOSTILE
    report["artifacts"][0]["rows"] = [{**row, "difference": -1.0, "verdict": "differs"}]
    report["artifacts"][0]["tables"] = [dataclasses.asdict(Table(HOSTILE, [HOSTILE], [[HOSTILE]]))]
    report["artifacts"][0]["notes"] = [HOSTILE]
    return report


def test_report_escapes_all_text(tmp_path) -> None:
    report = hostile_report(tmp_path)
    text = html_page(report, tmp_path)
    assert "<script" not in text
    assert "<img src=x" not in text
    line = next(line for line in markdown_page(report).splitlines() if line.startswith("| \\<script"))
    assert line.replace("\\|", "").count("|") == 9


@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")
def test_the_page_opens_in_a_browser(tmp_path) -> None:
    pytest.importorskip("aiohttp", reason="needs aiohttp to control the browser: pip install aiohttp")
    report = hostile_report(tmp_path)
    (tmp_path / "report.html").write_text(html_page(report, tmp_path))

    async def visit() -> tuple[list[int], str, list[str]]:
        async with browser(tmp_path / "profile") as tab:
            await tab.open((tmp_path / "report.html").as_uri())
            widths = await tab.run("[...document.images].map(image => image.naturalWidth)")
            return widths, await tab.run("document.querySelector('h1').textContent"), tab.problems

    widths, title, problems = asyncio.run(visit())
    assert len(widths) == 1
    assert min(widths) > 300
    assert title == HOSTILE
    assert problems == []


def test_the_scoreboard_continues_from_records_in_another_folder(tmp_path, monkeypatch, capsys) -> None:
    """One machine trains a part of the runs; another one trains the rest and has the results of all."""
    from fna_lightning.reproduction.artifacts import scoreboard

    monkeypatch.setattr(scoreboard, "attentions", lambda _: ["fna", "dp"])
    records = tmp_path / "records"
    small = ["--set", "data.train_size=64", "--set", "trainer.max_epochs=1", "--records", str(records)]
    assert reproduce(tmp_path / "first", "scoreboard", *small, "--shard", "1/2")[0] == 0
    assert len(list(records.rglob("seed_*.json"))) == 1
    capsys.readouterr()
    assert reproduce(tmp_path / "second", "scoreboard", *small)[0] == 0
    output = capsys.readouterr().out
    assert "1 runs restored from" in output
    assert "2 runs in" in output
    assert "1 to do here" in output
    entries = json.loads((tmp_path / "second/artifacts/scoreboard/scoreboard.json").read_text())["boards"]
    first = json.loads((tmp_path / "first/artifacts/scoreboard/scoreboard.json").read_text())["boards"]
    # FNA, dot-product attention, and the linear classifier, which the run of FNA measures
    assert [len(entry["values"]) for entry in entries["imdb_strong"]] == [1, 1, 1]
    assert first["imdb_strong"][0] == entries["imdb_strong"][0]
