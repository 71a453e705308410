"""Other people's attentions, tasks, data modules and callbacks, found by the entry points of installed packages.

A package that declares

    [project.entry-points."fna_lightning.plugins"]
    example = "fna_example"

has its module imported, and importing is registering: its classes get short names in configurations, and the YAML files
in its folder ``configs`` are found by name. One that cannot be imported is reported and skipped.
"""

import logging
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points, packages_distributions
from importlib.resources import files
from pathlib import Path

GROUP = "fna_lightning.plugins"
OURS = "fna-lightning"

log = logging.getLogger("fna_lightning")


@dataclass(frozen=True)
class Plugin:
    """One entry point.

    Attributes:
        name: its name in the entry point group.
        package: the distribution that declares it, with its version.
        module: what is imported.
        problem: why it could not be; None if it could.
    """

    name: str
    package: str
    module: str
    problem: str | None = None


@cache
def load_plugins() -> tuple[Plugin, ...]:
    """Import every plug-in once, and return what became of each."""
    return tuple(_load(point) for point in sorted(entry_points(group=GROUP), key=lambda point: point.name))


def _load(point: EntryPoint) -> Plugin:
    package = f"{point.dist.name} {point.dist.version}" if point.dist else "unknown"
    try:
        point.load()
    except Exception as error:  # whatever a stranger's module raises must not end a run that does not use it
        problem = f"{type(error).__name__}: {' '.join(str(error).split())}"
        log.warning("the plug-in %r (%s) cannot be imported and is skipped: %s", point.name, package, problem)
        log.debug("plug-in %s", point.name, exc_info=True)
        return Plugin(point.name, package, point.module, problem)
    return Plugin(point.name, package, point.module)


def plugin_configs() -> dict[str, Path]:
    """Return the configurations plug-ins bring along, by file name."""
    found: dict[str, Path] = {}
    for plugin in load_plugins():
        if plugin.problem is None:
            folder = files(plugin.module) / "configs"
            if folder.is_dir():
                found |= {item.name: Path(str(item)) for item in folder.iterdir() if item.name.endswith(".yaml")}
    return found


def origin(kind: type) -> str:
    """Return the distribution a class comes from."""
    top = kind.__module__.partition(".")[0]
    if top == "fna_lightning":
        return OURS
    return ", ".join(packages_distributions().get(top, [top]))
