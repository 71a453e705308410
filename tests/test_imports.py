"""Who may import whom, and torchvision's cure."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "fna_lightning"

# room: what it must never import
FORBIDDEN = {
    "attention": (
        "fna_lightning.nn",
        "fna_lightning.graph",
        "fna_lightning.task",
        "fna_lightning.commands",
        "lightning",
    ),
    "nn": ("fna_lightning.graph", "fna_lightning.task", "fna_lightning.commands", "lightning"),
    "graph": ("fna_lightning.nn", "fna_lightning.task", "fna_lightning.commands", "lightning"),
    "reproduction": ("fna_lightning.commands", "fna_lightning.cli", "fna_lightning.tasks", "fna_lightning.callbacks"),
    "integrations": ("fna_lightning.callbacks", "fna_lightning.commands", "fna_lightning.cli"),
    "../tasks": ("fna_lightning.callbacks", "fna_lightning.commands", "fna_lightning.cli"),
    "../callbacks": ("fna_lightning.tasks", "fna_lightning.commands", "fna_lightning.cli"),
}


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


@pytest.mark.parametrize("room", FORBIDDEN)
def test_rooms_import_downwards_only(room: str) -> None:
    files = list((PACKAGE / room).rglob("*.py")) if (PACKAGE / room).is_dir() else []
    for path in files:
        for name in imported(path):
            assert not any(name == bad or name.startswith(f"{bad}.") for bad in FORBIDDEN[room]), (
                f"{path} imports {name}"
            )


def test_lightning_imports_after_the_package() -> None:
    code = "import fna_lightning, lightning, torchmetrics, torchvision; from torchvision.transforms import v2"
    subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", code], check=True, cwd="/")


def test_the_library_does_not_load_the_application() -> None:
    """Nor what takes seconds to import: torchvision, and the compiler of torch."""
    code = "import fna_lightning, sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd="/", capture_output=True, text=True)
    assert not {"lightning", "datasets", "torchvision", "torch._dynamo", "matplotlib"} & set(done.stdout.split())
