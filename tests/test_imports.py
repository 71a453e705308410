"""Layers of the package: a module imports its own package and the packages below it."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

# from top to bottom; a package or a module of the root may import what stands below it
LAYERS = (
    "cli",
    "commands",
    "reproduction",
    "bench",
    "analysis",
    "experiments",
    "integrations",
    "callbacks",
    "tasks",
    "training",
    "checkpoints",
    "config",
    "task",
    "plotting",
    "introspection",
    "search",
    "nn",
    "graph",
    "attention",
    "utils",
    "errors",
    "version",
)
# these work without Lightning and are imported by people who do not use it
LIBRARY = ("plotting", "introspection", "search", "nn", "graph", "attention")
# the tasks know nothing of each other; what they share is in tasks/data
TASKS = ("fields", "text", "image", "translation")
# jsonargparse knows a class by its bare name once it is imported
REGISTRY = Path("fna_lightning/config/registry.py")
# installed as fna_lightning.tasks and fna_lightning.callbacks
MAPPED = ("tasks", "callbacks")


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the layer and the path of each module."""
    for top in ("fna_lightning", *MAPPED):
        for path in sorted((ROOT / top).rglob("*.py")):
            relative = path.relative_to(ROOT)
            if relative != Path("fna_lightning/__init__.py"):
                yield (top if top in MAPPED else relative.with_suffix("").parts[1]), relative


def imports(path: Path) -> set[str]:
    """Return every module that a file imports, also inside functions, with the names imported from packages."""
    names: set[str] = set()
    for node in ast.walk(ast.parse((ROOT / path).read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names |= {f"{node.module}.{alias.name}" for alias in node.names}
    return names


def problems(layer: str, path: Path) -> list[str]:
    """Return what is wrong with the imports of a module."""
    if layer not in LAYERS:
        return [f"{path} is in no layer: add its package to LAYERS, or move it into one"]
    violations = []
    for name in sorted(imports(path)):
        first, _, rest = name.partition(".")
        target = rest.partition(".")[0]
        if first in ("lightning", "pytorch_lightning") and layer in LIBRARY:
            violations.append(f"{path} imports {name}, but {layer} works without Lightning")
        if first == "fna_lightning" and target in LAYERS and LAYERS.index(target) < LAYERS.index(layer):
            violations.append(f"{path} imports {name}, but {target} is above {layer}")
        if first == "fna_lightning" and target and target not in LAYERS and name not in PUBLIC:
            violations.append(f"{path} imports {name}, which is in no layer")
    return violations


# the command line imports one command, the artifacts one of their own modules, the allow list what it lists
DYNAMIC = ("cli.py", "config/allowed_classes.py", "reproduction/artifacts/__init__.py")
PUBLIC = ("fna_lightning.attention_weights", "fna_lightning.available_kernels", "fna_lightning.fractional_attention")


@pytest.mark.parametrize(("layer", "path"), list(modules()), ids=lambda value: str(value))
def test_a_module_imports_only_its_own_layer_and_those_below(layer: str, path: Path) -> None:
    assert not problems(layer, path)


def test_every_layer_exists() -> None:
    assert {layer for layer, _ in modules()} == set(LAYERS)


def test_only_the_registry_imports_by_a_computed_name() -> None:
    """Imports by ``importlib`` are invisible to the test of layers."""
    dynamic = {path for _, path in modules() if "import_module" in (ROOT / path).read_text()}
    assert dynamic <= {REGISTRY, *(Path("fna_lightning", name) for name in DYNAMIC)}


def test_a_task_does_not_import_another_task() -> None:
    for layer, path in modules():
        if layer == "tasks" and len(path.parts) > 2:
            others = {task for task in TASKS if task != path.parts[1]}
            assert not [
                name for name in imports(path) if name.split(".")[1:2] == ["tasks"] and name.split(".")[2] in others
            ]


def test_lightning_imports_after_the_package() -> None:
    code = "import fna_lightning, lightning, torchmetrics, torchvision; from torchvision.transforms import v2"
    subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", code], check=True, cwd="/")


def test_the_library_does_not_load_the_application() -> None:
    """Nor what takes seconds to import: torchvision, and the compiler of torch."""
    code = "from fna_lightning import fractional_attention; import sys; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, cwd="/", capture_output=True, text=True)
    assert not {"lightning", "datasets", "torchvision", "torch._dynamo", "matplotlib"} & set(done.stdout.split())
