"""Classes that a package exports, read from its source files: importing tasks and callbacks takes seconds."""

import ast
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path


def exported_classes(package: str, base: str | None = None) -> dict[str, str]:
    """Return the first line of the docstring of each class in ``__all__`` of a package, by class name.

    Args:
        package: name of the package, such as ``fna_lightning.tasks``.
        base: name of a class; only classes derived from it are returned. None returns all classes.
    """
    folder = _folder(package)
    classes = {node.name: node for path in sorted(folder.rglob("*.py")) for node in _classes(path)}
    return {
        name: (ast.get_docstring(classes[name]) or "").partition("\n")[0]
        for name in sorted(_exported_names(folder / "__init__.py"))
        if name in classes and (base is None or base in _ancestors(name, classes))
    }


def _folder(package: str) -> Path:
    """Return the folder of a package without importing it."""
    spec = find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"there is no package {package}")
    return Path(next(iter(spec.submodule_search_locations)))


def _classes(path: Path) -> Iterator[ast.ClassDef]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef):
            yield node


def _exported_names(path: Path) -> list[str]:
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and any(getattr(target, "id", "") == "__all__" for target in node.targets):
            return ast.literal_eval(node.value)
    return []


def _ancestors(name: str, classes: dict[str, ast.ClassDef]) -> set[str]:
    """Return the names of all base classes, without their modules; those of other packages have no bases here."""
    names: set[str] = set()
    pending = [name]
    while pending:
        node = classes.get(pending.pop())
        for expression in node.bases if node else []:
            generic = expression.value if isinstance(expression, ast.Subscript) else expression
            bare = ast.unparse(generic).rpartition(".")[2]
            if bare not in names:
                names.add(bare)
                pending.append(bare)
    return names
