"""Plug-ins: attentions, tasks, data modules and callbacks of other installed packages, found by entry points.

A package declares a plug-in in its pyproject.toml:

    [project.entry-points."fna_lightning.plugins"]
    example = "fna_example"

The module is imported at startup, which registers its classes: configurations can use their bare names. The YAML files
in its folder ``configs`` are found by name. A plug-in that cannot be imported is skipped with a warning.
"""

import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from importlib.resources import files
from pathlib import Path

from fna_lightning.errors import one_line

GROUP = "fna_lightning.plugins"
OURS = "fna-lightning"

log = logging.getLogger("fna_lightning")


@dataclass(frozen=True)
class Plugin:
    """A plug-in and whether it could be imported.

    Attributes:
        name: name of the entry point.
        package: name and version of the distribution that declares it.
        module: module that is imported.
        problem: why the import failed; None if it succeeded.
    """

    name: str
    package: str
    module: str
    problem: str | None = None


@cache
def load_plugins() -> tuple[Plugin, ...]:
    """Import all plug-ins, once per process, and return them."""
    return tuple(_load(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _load(point: EntryPoint) -> Plugin:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
    try:
        point.load()
    except Exception as error:  # a broken plug-in must not end a run that does not use it
        problem = f"{type(error).__name__}: {one_line(error)}"
        log.warning("the plug-in %r (%s) cannot be imported and is skipped: %s", point.name, package, problem)
        log.debug("plug-in %s", point.name, exc_info=True)
        return Plugin(point.name, package, point.module, problem)
    return Plugin(point.name, package, point.module)


def plugin_configs() -> dict[str, Path]:
    """Return the paths of the plug-ins' configurations by file name."""
    paths: dict[str, Path] = {}
    for plugin in load_plugins():
        if plugin.problem is None:
            folder = files(plugin.module) / "configs"
            if folder.is_dir():
                paths |= {item.name: Path(str(item)) for item in folder.iterdir() if item.name.endswith(".yaml")}
    return paths


def origin(cls: type) -> str:
    """Return the name of the distribution that a class comes from."""
    top = cls.__module__.partition(".")[0]
    if top == "fna_lightning":
        return OURS
    return ", ".join(packages_distributions().get(top, [top]))
