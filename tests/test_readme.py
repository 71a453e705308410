"""README and CONTRIBUTING: the commands and the Python example work, and every path and link exists."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE
from fna_lightning.version import VERSION

from helpers.shipped_data import own_data

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
COMMANDS = [line.partition("#")[0].strip() for line in README.splitlines() if line.startswith("fna-lightning ")]
CHECKPOINT = "runs/reviews_fna/version_0/checkpoints/best.ckpt"
SMALL = ["--data.train_size=32", "--data.eval_size=20", "--data.longest=40"]
LONGEST = 130


def targets_of(text: str) -> list[str]:
    """Return the local files that the links and images of a Markdown text point to."""
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", text)
    return [link for link in links if not link.startswith("http")]


def test_python_example_prints_what_it_promises(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    code += "assert torch.allclose(weights.sum(-1), torch.ones(2, 8, 128))\n"
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert result.stdout == "torch.Size([2, 8, 128, 32])\n"


def test_commands_run_in_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Train on little data, then use the checkpoint with the commands that follow."""
    monkeypatch.chdir(tmp_path)
    own_data(tmp_path)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")
    assert [shlex.split(command)[1] for command in COMMANDS] == ["fit", "classify", "analyze", "list", "fit"]
    for command in COMMANDS:
        words = shlex.split(command)[1:]
        extra = {"fit": ["--epochs=1"], "analyze": ["--count=2"]}.get(words[0], [])
        if "reviews_fna.yaml" in words:
            extra += SMALL
        assert main([*words, *extra]) == 0, command
    assert (tmp_path / CHECKPOINT).is_file()
    for name in ("config.yaml", "metrics.csv", "results.json"):
        assert (tmp_path / CHECKPOINT).parents[1].joinpath(name).is_file()
    assert "reviews_fna.yaml" in capsys.readouterr().out


@pytest.mark.parametrize("target", sorted(set(re.findall(r"^make (\w+)", README + CONTRIBUTING, flags=re.MULTILINE))))
def test_make_targets_exist(target: str) -> None:
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_make_help_lists_every_target() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (targets,) = re.findall(r"^\.PHONY: help (.*)$", makefile, flags=re.MULTILINE)
    assert re.findall(r"@echo \"make (\w+) ", makefile) == targets.split()


@pytest.mark.parametrize("text", [README, CONTRIBUTING], ids=["README", "CONTRIBUTING"])
def test_links_and_images_exist(text: str) -> None:
    missing = [target for target in targets_of(text) if not (ROOT / target).exists()]
    assert not missing


def test_readme_has_links_an_image_and_few_lines() -> None:
    assert "docs/images/demo.png" in targets_of(README)
    assert len(README.splitlines()) <= LONGEST


def test_paths_in_contributing_exist() -> None:
    """A path in backticks is relative to the repository, to ``fna_lightning`` or to ``fna_lightning/attention``."""
    names = set(re.findall(r"`(\w+/[\w./]*)`", CONTRIBUTING))
    bases = (
        ROOT,
        ROOT / "fna_lightning",
        ROOT / "fna_lightning/attention",
        ROOT / "fna_lightning/attention/kernels/cpu",
    )
    missing = [name for name in names if not any((base / name).exists() for base in bases)]
    assert len(names) > 40
    assert not missing


def test_the_tree_in_contributing_names_every_package() -> None:
    (tree,) = re.findall(r"```\n(fna_lightning/\n.*?)```", CONTRIBUTING, flags=re.DOTALL)
    listed = {name.rstrip("/") for name in re.findall(r"^ *([\w/]+/)", tree, flags=re.MULTILINE)}
    inits = [
        path for top in ("fna_lightning", "tasks", "callbacks", "configs") for path in (ROOT / top).rglob("__init__.py")
    ]
    packages = {path.parent.name for path in inits}
    inner = {"hf", "hub", "artifacts"}  # described in the line of the package that contains them
    assert packages - inner <= listed


def test_the_layers_in_contributing_are_those_that_are_tested() -> None:
    tested = re.search(r"^LAYERS = \((.*?)^\)", (ROOT / "tests/test_imports.py").read_text(), re.DOTALL | re.MULTILINE)
    assert tested is not None
    (block,) = re.findall(r"```\n(cli > .*?)```", CONTRIBUTING, flags=re.DOTALL)
    assert re.findall(r"\w+", block) == re.findall(r'"(\w+)"', tested[1])


def test_citation_names_this_version() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == VERSION
    assert citation["license"] == "Apache-2.0"
    assert "2511.10208" in citation["references"][0]["url"]
