"""Documentation: Python examples run, commands and images exist, and the reference pages are complete."""

import argparse
import importlib
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fna_lightning.cli import COMMANDS, main
from fna_lightning.commands.bench import benchmarks
from fna_lightning.config.registry import PACKAGES
from fna_lightning.training.subcommands import SUBCOMMANDS

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted(DOCS.rglob("*.md"))
# packages that the examples of a page need in addition to this one
NEEDS = {"tutorial.md": "transformers", "transformers.md": "accelerate", "timm.md": "timm"}
# the commands that train one process; docs/clusters.md starts several
TRAINING_PAGES = (DOCS / "how-to/train.md", DOCS / "how-to/translate.md", REFERENCE / "commands.md")
FIT_COMMANDS = sorted(
    {
        line.partition("#")[0].strip()
        for page in TRAINING_PAGES
        for line in page.read_text().splitlines()
        if line.startswith("fna-lightning fit ")
    }
)


def examples(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))


def sections(text: str, mark: str) -> dict[str, str]:
    """Return the text below each heading that starts with ``mark``, by heading."""
    parts = re.split(rf"^{mark} (.+)$", text, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    """All examples of a page run in one process, in their order, as a reader would type them."""
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    code = examples(page)
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_commands_and_images_exist(page: Path) -> None:
    text = page.read_text()
    for command in re.findall(r"^fna-lightning (\w+)", text, flags=re.MULTILINE):
        assert command in COMMANDS or command in SUBCOMMANDS
    for image in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (page.parent / image).is_file()


@pytest.mark.usefixtures("shipped_environment")
@pytest.mark.parametrize("command", FIT_COMMANDS)
def test_fit_commands_train(command: str) -> None:
    limits = ["--trainer.limit_train_batches=2", "--trainer.limit_val_batches=1", "--trainer.max_epochs=1"]
    if "reviews" in command or "numbers" in command:
        # these data sets are generated
        limits += ["--data.train_size=32", "--data.eval_size=20"]
    assert main([*shlex.split(command)[1:], *limits]) == 0


@pytest.mark.parametrize("command", [*COMMANDS, *SUBCOMMANDS])
def test_every_command_has_help(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    assert re.search(rf"fna-lightning (\[options\] )?{command}\b", capsys.readouterr().out)


def test_shipped_configs_in_the_docs_exist() -> None:
    for page in PAGES:
        for config in re.findall(r"--config (\w+\.yaml)", page.read_text()):
            assert (ROOT / "configs" / config).is_file() or config == "example_cauchy.yaml", f"{config} in {page.name}"


def test_the_figures_of_the_mathematics_can_be_drawn() -> None:
    figures = runpy.run_path(str(DOCS / "draw_mathematics.py"))["FIGURES"]
    shown = re.findall(r"images/(\w+)\.png", (DOCS / "mathematics.md").read_text())
    assert [draw.__name__ for draw in figures] == shown
    for draw in figures:
        assert all(axes.has_data() for axes in draw().axes)


def test_every_page_is_in_the_navigation() -> None:
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert all(str(page.relative_to(DOCS)) in navigation for page in PAGES)


def documented_options(section: str) -> set[str]:
    """Return the options in the first column of the table of a section."""
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("|")]
    return {option for row in rows for option in re.findall(r"--[a-z][a-z-]+", row)}


def parsed_options(module_name: str) -> set[str]:
    """Return the options that a command accepts, except ``--help``."""
    parser = argparse.ArgumentParser(add_help=False)
    importlib.import_module(module_name).add_arguments(parser)
    return set(re.findall(r"^  (?:-\w[^,]*, )?(--[a-z][a-z-]+)", parser.format_help(), flags=re.MULTILINE)) | set(
        re.findall(r", (--[a-z][a-z-]+)", parser.format_help())
    )


def test_every_command_has_a_section_with_an_example() -> None:
    page = sections((REFERENCE / "commands.md").read_text(), "##")
    assert set(page) == {*COMMANDS, *SUBCOMMANDS}
    for command, section in page.items():
        assert re.search(rf"^fna-lightning {command}\b", section, flags=re.MULTILINE), f"{command} has no example"


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"bench"}))
def test_every_option_of_a_command_is_documented(command: str) -> None:
    section = sections((REFERENCE / "commands.md").read_text(), "##")[command]
    assert documented_options(section) == parsed_options(f"fna_lightning.commands.{command}")


def test_every_option_of_a_benchmark_is_documented() -> None:
    bench = sections((REFERENCE / "commands.md").read_text(), "##")["bench"]
    page = sections(bench, "###")
    assert set(page) == {f"bench {benchmark}" for benchmark in benchmarks()}
    for benchmark, module in benchmarks().items():
        options = parsed_options(module.__name__)
        assert documented_options(page[f"bench {benchmark}"]) == options, benchmark


def test_every_environment_variable_is_documented() -> None:
    """A variable is a name in quotes that begins with FNA_, in Python or C."""
    sources = [
        path
        for folder in ("fna_lightning", "tasks", "callbacks", "tests")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in (".py", ".c", ".h")
    ]
    used = {name for path in sources for name in re.findall(r"\"(FNA_[A-Z_]+)\"", path.read_text())}
    documented = set(re.findall(r"^\| `(FNA_[A-Z_]+)`", (REFERENCE / "environment.md").read_text(), flags=re.MULTILINE))
    assert documented == used


@pytest.mark.parametrize("package", [*PACKAGES, "graph"])
def test_the_reference_includes_every_public_class(package: str) -> None:
    """The reference shows all names in ``__all__`` of a package."""
    text = "".join(page.read_text() for page in REFERENCE.glob("*.md"))
    assert f"::: fna_lightning.{package}\n" in text


@pytest.mark.parametrize("name", ["beam_search", "sample", "Hypothesis", "TokenScores"])
def test_the_reference_includes_search(name: str) -> None:
    assert f"::: fna_lightning.search.{name}\n" in (REFERENCE / "search.md").read_text()
