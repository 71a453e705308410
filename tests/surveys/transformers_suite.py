"""Run transformers' own model tests with FNA as the attention, and print a table of the outcomes.

    FNA_TRANSFORMERS_SOURCE=~/transformers python tests/surveys/transformers_suite.py --out table.md

FNA_TRANSFORMERS_SOURCE is a checkout of transformers, with its folders `tests` and `src`; the installed transformers is
tested. Each suite runs with FNA, and the tests that fail run again with eager attention, with the same random numbers
and without access to the network. Tests marked as slow are left out, and so are tests of pipelines, which need models
from the hub, and of FSDP and tensor parallelism, whose processes do not see the replaced attention. A test that fails
with FNA only and does not assert that the model has another attention counts as a failure of this library, and the exit
code is 1.
"""

import argparse
import importlib.metadata
import importlib.util
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

VARIABLE = "FNA_TRANSFORMERS_SOURCE"
MODELS = ("bert", "gpt2", "llama", "mistral", "t5", "bart", "marian", "whisper", "vit", "distilbert")
PACKAGES = ("httpx", "parameterized", "pytest_timeout")
SELECTION = "not (is_pipeline_test or is_fsdp_test or is_tensor_parallel_test)"
SECONDS_PER_TEST = 300

# First words of the names of tests that assert which attention a model has, and therefore fail with every other one.
ASSERT_ANOTHER = {
    "test_can_set_attention_dynamically": 'asserts that a model set to "eager" has that name',
    "test_sdpa_can_dispatch_non_composite_models": 'asserts that the default is "sdpa" and that "eager" has that name',
    "test_sdpa_can_dispatch_composite_models": 'asserts that the default is "sdpa"',
    "test_attn_implementation_composite_models": 'asserts that a model set to "eager" has that name',
    "test_eager_matches_sdpa": 'asserts that "eager" and "sdpa" have the same output',
    "test_gpt2_sdpa_matches_eager": 'asserts that "eager" and "sdpa" have the same output',
}


@dataclass(frozen=True)
class Row:
    """Outcomes of one suite: the names of its tests by class.

    Attributes:
        passed: passed with FNA.
        skipped: skipped with FNA.
        also_eager: failed with FNA and with eager attention.
        assert_another: failed with FNA because they assert that the model has another attention.
        ours: failed with FNA only.
    """

    model: str
    passed: Sequence[str]
    skipped: Sequence[str]
    also_eager: Sequence[str]
    assert_another: Sequence[str]
    ours: Sequence[str]


def read_report(file: Path) -> dict[str, str]:
    """Return the outcome of each test in a report; a test with several outcomes, such as subtests, has the worst."""
    order = ("skipped", "passed", "failed")
    outcomes: dict[str, str] = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        entry = json.loads(line)
        test, outcome = entry["test"].partition("::")[2], entry["outcome"]
        outcomes[test] = max(outcomes.get(test, outcome), outcome, key=order.index)
    return outcomes


def asserted(test: str) -> str | None:
    """Return what a test asserts about the attention of a model, or None."""
    name = test.rpartition("::")[2]
    return next((reason for words, reason in ASSERT_ANOTHER.items() if name.startswith(words)), None)


def family(test: str) -> str:
    """Return the name of a test; the cases of a parametrized test in ``ASSERT_ANOTHER`` have one name, with a star."""
    name = test.rpartition("::")[2]
    words = next((words for words in ASSERT_ANOTHER if name.startswith(words)), name)
    return name if words == name else f"{words}*"


def classify(model: str, fna: Mapping[str, str], eager: Mapping[str, str]) -> Row:
    """Return the outcomes of a suite with FNA, compared with those with eager attention."""
    failed = sorted(test for test, outcome in fna.items() if outcome == "failed")
    assert_another = [test for test in failed if asserted(test)]
    rest = [test for test in failed if test not in assert_another]
    also_eager = [test for test in rest if eager.get(test) == "failed"]
    passed, skipped = ([test for test in fna if fna[test] == outcome] for outcome in ("passed", "skipped"))
    return Row(model, passed, skipped, also_eager, assert_another, [test for test in rest if test not in also_eager])


def table(rows: Sequence[Row]) -> str:
    """Return the rows as a Markdown table with their sum."""
    lines = [
        "| suite | passed | failed | also fail with eager | assert another attention | failures of FNA | skipped |",
        "|---|--:|--:|--:|--:|--:|--:|",
    ]
    total = Row("sum", *([test for row in rows for test in getattr(row, name)] for name in list(vars(rows[0]))[1:]))
    for row in [*rows, total]:
        failed = len(row.also_eager) + len(row.assert_another) + len(row.ours)
        counts = (row.passed, failed, row.also_eager, row.assert_another, row.ours, row.skipped)
        numbers = [str(count if isinstance(count, int) else len(count)) for count in counts]
        lines.append(f"| {' | '.join([row.model, *numbers])} |")
    return "\n".join(lines)


def failures(rows: Sequence[Row]) -> str:
    """Return the names of the failed tests as a Markdown list: each with its suites and why it is not counted."""
    groups: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        reasons = {test: str(asserted(test)) for test in row.assert_another}
        reasons |= dict.fromkeys(row.also_eager, "also fails with eager attention")
        reasons |= dict.fromkeys(row.ours, "failure of FNA")
        for test, reason in reasons.items():
            groups.setdefault((family(test), reason), []).append(row.model)
    lines = [f"- `{name}` ({', '.join(dict.fromkeys(models))}): {why}." for (name, why), models in groups.items()]
    return "\n".join(lines)


def run_suite(
    source: Path, model: str, attention: str, folder: Path, tests: Sequence[str] | None = None
) -> dict[str, str]:
    """Run the tests of a model, or some of them, and return their outcomes; the log is written to the folder."""
    report, log = folder / f"{model}.{attention}.jsonl", folder / f"{model}.{attention}.log"
    report.unlink(missing_ok=True)
    test_file = f"tests/models/{model}/test_modeling_{model}.py"
    selected = [test_file] if tests is None else [f"{test_file}::{test}" for test in tests]
    command = [sys.executable, "-m", "pytest", *selected, "-q", "-m", SELECTION, "-p", "no:cacheprovider"]
    command += ["-p", "helpers.transformers_plugin", "--fna-attention", attention, "--fna-report", str(report)]
    command += [f"--timeout={SECONDS_PER_TEST}"]
    path = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(path)}
    with log.open("w", encoding="utf-8") as stream:
        code = subprocess.run(
            command, cwd=source, env=environment, stdout=stream, stderr=subprocess.STDOUT, check=False
        ).returncode
    # pytest returns 1 if tests failed; any other code means that it could not run them.
    if code not in (0, 1) or not report.exists():
        sys.exit(f"the tests of {model} could not be run with {attention} attention (exit code {code}); see {log}")
    return read_report(report)


def source_folder() -> Path:
    """Return the checkout of transformers, or end with a message."""
    value = os.environ.get(VARIABLE)
    if not value:
        sys.exit(f"{VARIABLE} is not set; set it to a checkout of transformers with its folders tests and src")
    source = Path(value).expanduser().resolve()
    for folder in (source / "tests" / "models", source / "src" / "transformers"):
        if not folder.is_dir():
            sys.exit(f"{VARIABLE} is {value}, which has no folder {folder}; set it to a checkout of transformers")
    if missing := [name for name in PACKAGES if importlib.util.find_spec(name) is None]:
        names = " ".join(name.replace("_", "-") for name in missing)
        sys.exit(f"transformers' tests need packages that are not installed; pip install {names}")
    return source


def versions(source: Path) -> str:
    """Return the versions of what is tested, and the date."""
    initial = (source / "src" / "transformers" / "__init__.py").read_text(encoding="utf-8")
    tests = initial.partition('__version__ = "')[2].partition('"')[0]
    names = [f"{name} {importlib.metadata.version(name)}" for name in ("transformers", "torch", "fna-lightning")]
    return f"{', '.join(names)}; tests of transformers {tests}; {datetime.now(UTC):%Y-%m-%d}."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the suites and return the exit code."""
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--models", nargs="+", default=MODELS, metavar="NAME", help=f"default: {' '.join(MODELS)}")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the table to this Markdown file")
    parser.add_argument("--logs", type=Path, metavar="FOLDER", help="keep reports and logs here; default: a new folder")
    options = parser.parse_args(arguments)
    source = source_folder()
    folder = (options.logs or Path(tempfile.mkdtemp(prefix="transformers_suite_"))).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    rows = []
    for model in options.models:
        fna = run_suite(source, model, "fna", folder)
        failed = [test for test, outcome in fna.items() if outcome == "failed"]
        eager = run_suite(source, model, "eager", folder, failed) if failed else {}
        row = classify(model, fna, eager)
        rows.append(row)
        print(f"{model}: {len(row.passed)} passed, {len(row.ours)} failures of FNA", flush=True)
    text = f"{versions(source)}\n\n{table(rows)}\n\n{failures(rows)}\n"
    print(f"\n{text}\nlogs: {folder}")
    if options.out is not None:
        options.out.write_text(text, encoding="utf-8")
    return 1 if any(row.ours for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
