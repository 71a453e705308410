"""The script that runs transformers' own tests: how outcomes are read, classified and shown."""

import json
from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra `hf`")

import transformers.masking_utils
from surveys import transformers_suite as suite

from helpers.transformers_plugin import MissingName, stub_missing_names


def test_the_worst_outcome_of_a_test_counts(tmp_path: Path) -> None:
    lines = [("A::one", "passed"), ("A::one", "failed"), ("A::one", "passed")]
    lines += [("A::two", "skipped"), ("A::two", "passed")]
    report = tmp_path / "report.jsonl"
    entries = [{"test": f"tests/test_x.py::{test}", "outcome": outcome} for test, outcome in lines]
    report.write_text("\n".join(json.dumps(entry) for entry in entries), encoding="utf-8")
    assert suite.read_report(report) == {"A::one": "failed", "A::two": "passed"}


FNA = {
    "A::test_good": "passed",
    "A::test_other": "skipped",
    "A::test_broken": "failed",
    "A::test_ours": "failed",
    "A::test_can_set_attention_dynamically": "failed",
    "A::test_eager_matches_sdpa_inference_00_fp16": "failed",
}
EAGER = dict.fromkeys(FNA, "passed") | {"A::test_broken": "failed"}


def test_failures_are_classified_and_listed() -> None:
    row = suite.classify("bert", FNA, EAGER)
    assert row.also_eager == ["A::test_broken"]
    assert row.ours == ["A::test_ours"]
    assert row.assert_another == [test for test in FNA if "attention" in test or "sdpa" in test]
    text = suite.table([row, suite.classify("vit", {"B::test_good": "passed"}, {})])
    assert text.splitlines()[2:] == ["| bert | 1 | 4 | 1 | 2 | 1 | 1 |", "| vit | 1 | 0 | 0 | 0 | 0 | 0 |",
                                     "| sum | 2 | 4 | 1 | 2 | 1 | 1 |"]  # fmt: skip
    listed = suite.failures([row])
    assert "- `test_ours` (bert): failure of FNA." in listed
    assert "- `test_broken` (bert): also fails with eager attention." in listed
    assert '- `test_eager_matches_sdpa*` (bert): asserts that "eager" and "sdpa" have the same output.' in listed
    assert '- `test_can_set_attention_dynamically` (bert): asserts that a model set to "eager" has that name.' in listed


def test_a_failure_of_fna_is_the_exit_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(suite, "source_folder", lambda: tmp_path)
    monkeypatch.setattr(suite, "versions", lambda source: "versions")
    outcomes = {"fna": FNA, "eager": EAGER}
    selected = []

    def run(source: Path, model: str, attention: str, folder: Path, tests: list[str] | None = None) -> dict[str, str]:
        selected.append(tests)
        return outcomes[attention]

    monkeypatch.setattr(suite, "run_suite", run)
    out = tmp_path / "table.md"
    assert suite.main(["--models", "bert", "--out", str(out), "--logs", str(tmp_path)]) == 1
    assert selected == [None, [test for test in FNA if FNA[test] == "failed"]]
    assert "| bert | 1 | 4 |" in out.read_text(encoding="utf-8")
    outcomes["fna"] = {test: outcome for test, outcome in FNA.items() if test != "A::test_ours"}
    assert suite.main(["--models", "bert", "--logs", str(tmp_path)]) == 0


def test_a_missing_checkout_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(suite.VARIABLE, raising=False)
    with pytest.raises(SystemExit, match="FNA_TRANSFORMERS_SOURCE is not set; set it to a checkout of transformers"):
        suite.main([])
    monkeypatch.setenv(suite.VARIABLE, str(tmp_path))
    with pytest.raises(SystemExit, match=r"which has no folder .*tests/models; set it to a checkout"):
        suite.main([])


def test_names_of_another_version_are_stubs(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "from transformers.masking_utils import sdpa_mask, no_such_name\nfrom transformers.no_such_module import x"
    assert stub_missing_names(source) == ["no_such_name"]
    stub = vars(transformers.masking_utils).pop("no_such_name")
    assert isinstance(stub, MissingName)
    with pytest.raises(Exception, match="the installed transformers has no no_such_name"):
        stub()
