"""MkDocs hook: lays the source out as it is installed, so that mkdocstrings finds ``fna_lightning.tasks`` and others.

``tasks`` and ``callbacks`` are folders at the top of the repository but install inside ``fna_lightning`` (see
``package-dir`` in pyproject.toml). mkdocstrings reads source files and cannot follow this mapping.
"""

import shutil
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "build" / "docs_source"
SKIPPED = shutil.ignore_patterns("__pycache__", "*.so", "csrc")


def on_startup(*, command: str, dirty: bool) -> None:
    """Copy the packages to ``build/docs_source``, which mkdocs.yml names as the path of mkdocstrings."""
    shutil.rmtree(SOURCE, ignore_errors=True)
    package = SOURCE / "fna_lightning"
    shutil.copytree(ROOT / "fna_lightning", package, ignore=SKIPPED)
    for folder in ("tasks", "callbacks"):
        shutil.copytree(ROOT / folder, package / folder, ignore=SKIPPED)
