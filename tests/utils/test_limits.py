"""YAML and JSON that would exhaust memory or stack is refused at once, with the file and the limit."""

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from fna_lightning.analysis.models import run_data
from fna_lightning.checkpoints.load import build_task
from fna_lightning.checkpoints.resume import changes
from fna_lightning.cli import main
from fna_lightning.config.resolve import resolve_config, shipped_configs
from fna_lightning.errors import UsageError
from fna_lightning.experiments.markdown import read_published
from fna_lightning.training.run_folder import read_results
from fna_lightning.utils.limits import MAX_DEPTH, check_tree, check_yaml, read_json, read_yaml

MAX_SECONDS = 5.0

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, 12)
)
BOMBS = {
    "brackets": ("trainer: " + "[" * 100_000 + "]" * 100_000, "is nested more than 64 levels deep"),
    "open brackets": ("[" * 100_000, "is nested more than 64 levels deep"),
    "braces": ("{a: " * 100_000 + "1" + "}" * 100_000, "is nested more than 64 levels deep"),
    "dashes": ("- " * 100_000 + "x", "is nested more than 64 levels deep"),
    "billion laughs": (LAUGHS, "expands to more than 50,000 values with its aliases"),
    "itself": ("trainer: &a {callbacks: [*a]}", "contains itself: \\*a inside &a"),
    "aliases in depth": (
        "a0: &a0 [x]\n" + "".join(f"a{i}: &a{i} [*a{i - 1}]\n" for i in range(1, 500)),
        "is nested more than 64 levels deep",
    ),
    "size": ("# " + "x" * 2_000_000, "the limit"),
}


@pytest.mark.parametrize("bomb", BOMBS)
def test_a_configuration_bomb_is_refused(bomb: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text, words = BOMBS[bomb]
    path = tmp_path / "bomb.yaml"
    path.write_text(text)
    for read in (resolve_config, lambda name: read_yaml(Path(name)), lambda name: read_published(Path(name))):
        started = time.perf_counter()
        with pytest.raises(UsageError, match=f"bomb.yaml.*{words}"):
            read(str(path))
        assert time.perf_counter() - started < MAX_SECONDS
    for argv in (["fit", "--config", str(path)], ["test", f"--config={path}"], ["sweep", "--config", str(path)]):
        assert main(argv) == 2
        printed = capsys.readouterr().err
        assert "Traceback" not in printed
        assert printed.count("fna-lightning: error:") == 1
        assert "bomb.yaml" in printed


def test_a_bomb_in_a_file_named_by_a_configuration(tmp_path: Path) -> None:
    """The parser opens files named in a configuration, and loads strings in it as YAML."""
    (tmp_path / "part.yaml").write_text(LAUGHS)
    config = tmp_path / "outer.yaml"
    config.write_text("trainer: part.yaml\n")
    # in a separate process with limited memory, because without the check it would use all memory
    code = (
        "import resource, sys; hard = resource.getrlimit(resource.RLIMIT_AS)[1]\n"
        "resource.setrlimit(resource.RLIMIT_AS, (1 << 34 if hard < 0 else min(1 << 34, hard), hard))\n"
        "from fna_lightning.cli import main; sys.exit(main(sys.argv[1:]))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, "fit", "--config", config], capture_output=True, text=True, timeout=100
    )
    assert ended.returncode == 2, ended.stderr
    assert "expands to more than 50,000 values" in ended.stderr


@pytest.mark.parametrize("bomb", ["billion laughs", "itself", "brackets"])
def test_a_bomb_in_a_model_config_is_refused(bomb: str) -> None:
    model_config = {"class_path": "fna_lightning.tasks.TextClassification", "init_args": {"attention": BOMBS[bomb][0]}}
    started = time.perf_counter()
    with pytest.raises(UsageError, match=r"the checkpoint: the model_config cannot be built: .*(values|itself|deep)"):
        build_task(model_config, trust=True)
    with pytest.raises(UsageError, match="a file may only name classes"):
        build_task(model_config)
    assert time.perf_counter() - started < MAX_SECONDS


@pytest.mark.parametrize("bomb", ["billion laughs", "itself", "brackets"])
def test_a_bomb_in_a_run_folder_is_refused(bomb: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(BOMBS[bomb][0])
    assert main(["resume", str(tmp_path)]) == 2
    with pytest.raises(UsageError, match=BOMBS[bomb][1]):
        list(changes(BOMBS[bomb][0], ""))
    with pytest.raises(UsageError, match=r"config\.yaml .*(values|itself|deep)"):
        run_data(tmp_path / "config.yaml")


@pytest.mark.parametrize("name", shipped_configs())
def test_shipped_configurations_are_within_the_limits(name: str) -> None:
    assert isinstance(read_yaml(shipped_configs()[name]), dict)


trees = st.recursive(
    st.none() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=30,
)


@given(tree=trees)
def test_ordinary_values_pass(tree: Any) -> None:
    check_yaml(yaml.safe_dump(tree), "a text")
    check_tree(tree, "a tree")


def test_anchors_and_merges_are_allowed() -> None:
    check_yaml("base: &base {dim: 8, depth: 2}\nmodel: {<<: *base, dim: 16}\nother: *base\n", "a text")


def test_the_depth_limit_is_exact() -> None:
    tree: list[Any] = []
    for _ in range(MAX_DEPTH - 1):
        tree = [tree]
    check_tree(tree, "a tree")
    check_yaml(json.dumps(tree), "a text")
    with pytest.raises(UsageError, match="64 levels"):
        check_tree([tree], "a tree")
    with pytest.raises(UsageError, match="64 levels"):
        check_yaml(json.dumps([tree]), "a text")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "cannot be read as JSON: Expecting property name"),
        (b"", "cannot be read as JSON"),
        (b"\x00" * 50, "cannot be read as JSON"),
        (b"\xff\xfe", r"is not UTF-8 \(byte 1\)"),
        (b"[" * 100_000, "is nested too deeply to be read as JSON"),
        (b"[" * 200 + b"]" * 200, "is nested more than 64 levels deep"),
        (b"[1]", "does not have the structure of the results of a run"),
        (b'{"fit": 3}', "does not have the structure of the results of a run"),
    ],
)
def test_a_damaged_results_file_is_named(content: bytes, words: str, tmp_path: Path) -> None:
    (tmp_path / "results.json").write_bytes(content)
    with pytest.raises(UsageError, match=rf"results\.json {words}") as caught:
        read_results(tmp_path)
    assert len(str(caught.value)) < 400


def test_a_damaged_scores_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for content, words in {
        "{": "cannot be read as JSON",
        "[]": "does not contain the scores of a translation run",
        '{"metrics": {"bleu": "<b>"}, "signatures": {}, "decoding": {}}': "contains a score that is not a number",
    }.items():
        (tmp_path / "test.scores.json").write_text(content)
        assert main(["compare", str(tmp_path)]) == 2
        printed = capsys.readouterr().err
        assert f"{tmp_path / 'test.scores.json'} {words}" in printed
        assert "write it again with `fna-lightning test`" in printed


def test_a_large_json_file_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "large.json"
    with path.open("wb") as file:
        file.truncate(1 << 34)
    with pytest.raises(UsageError, match="has 17,179,869,184 bytes, the limit for JSON is 67,108,864"):
        read_json(path, "make it smaller")
