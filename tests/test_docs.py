"""What the documentation shows runs: its Python examples, its commands, its pictures."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from fna_lightning.cli import COMMANDS
from fna_lightning.training.subcommands import SUBCOMMANDS

DOCS = Path(__file__).parents[1] / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
# what a page's examples need beside the package itself
NEEDS = {"tutorial.md": "transformers", "transformers.md": "accelerate", "timm.md": "timm"}


def examples(page: Path) -> str:
    return "\n".join(re.findall(r"```python\n(.*?)```", page.read_text(), flags=re.DOTALL))


@pytest.mark.parametrize("page", [page for page in PAGES if examples(page)], ids=lambda page: page.stem)
def test_python_examples_run(page: Path, tmp_path: Path) -> None:
    """In one process, one after the other, as a reader would type them."""
    if page.name in NEEDS:
        pytest.importorskip(NEEDS[page.name])
    code = examples(page)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_verbs_and_pictures_exist(page: Path) -> None:
    text = page.read_text()
    for verb in re.findall(r"^fna-lightning (\w+)", text, flags=re.MULTILINE):
        assert verb in COMMANDS or verb in SUBCOMMANDS
    for picture in re.findall(r"!\[.*?\]\((.*?)\)", text):
        assert (page.parent / picture).is_file()


def test_every_page_is_in_the_navigation() -> None:
    navigation = (DOCS.parent / "mkdocs.yml").read_text()
    assert all(str(page.relative_to(DOCS)) in navigation for page in PAGES)
