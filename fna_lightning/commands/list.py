"""List attentions, kernels, tasks, data sets, callbacks, configurations and plug-ins.

Examples:
  fna-lightning list
  fna-lightning list configs
"""

import argparse
import inspect
import json
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from fna_lightning.config.plugins import OURS, load_plugins, origin

# name: (package it comes from, description)
Entries = dict[str, tuple[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("section", nargs="?", choices=SECTIONS, help="list this section only")
    parser.add_argument("--json", metavar="FILE", type=Path, help="also write the lists as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    sections = {name: SECTIONS[name]() for name in ([args.section] if args.section else SECTIONS)}
    console = Console(soft_wrap=True)
    for title, entries in sections.items():
        table = Table("name", "from", "", title=title, title_justify="left", show_header=False)
        for name, (package, description) in entries.items():
            table.add_row(name, package, description)
        console.print(table)
    if args.json:
        document: dict[str, Any] = {
            title: {name: description for name, (_, description) in entries.items()}
            for title, entries in sections.items()
        }
        document["from"] = {
            title: {name: package for name, (package, _) in entries.items()} for title, entries in sections.items()
        }
        args.json.write_text(json.dumps(document, indent=2) + "\n")
    return 0


def _subclasses(base: type) -> Entries:
    """Return the imported concrete subclasses of ``base`` with the first line of their docstrings."""
    entries: Entries = {}
    pending: list[type] = list(base.__subclasses__())
    while pending:
        cls = pending.pop()
        pending += cls.__subclasses__()
        if not inspect.isabstract(cls) and not cls.__module__.startswith("lightning."):
            entries[cls.__name__] = origin(cls), (inspect.getdoc(cls) or "").partition("\n")[0]
    return dict(sorted(entries.items()))


def _exported(package: str, base: str | None = None) -> Entries:
    """Return the classes that a package of fna-lightning exports, without importing it."""
    from fna_lightning.config.class_index import exported_classes

    return {name: (OURS, summary) for name, summary in exported_classes(package, base).items()}


def _of_plugins(base: type) -> Entries:
    """Return the subclasses of ``base`` that plug-ins have registered."""
    return {name: entry for name, entry in _subclasses(base).items() if entry[0] != OURS}


def _attentions() -> Entries:
    from fna_lightning.attention import Attention

    return _subclasses(Attention)


def _projections() -> Entries:
    from fna_lightning.attention import Projection

    return _subclasses(Projection)


def _kernels() -> Entries:
    from fna_lightning.attention import available_kernels

    return {name: (OURS, status) for name, status in available_kernels().items()}


def _tasks() -> Entries:
    entries = _exported("fna_lightning.tasks", "Task")
    if load_plugins():
        from fna_lightning.task import Task

        entries |= _of_plugins(Task)
    return dict(sorted(entries.items()))


def _data() -> Entries:
    entries = _exported("fna_lightning.tasks", "LightningDataModule")
    if load_plugins():
        import lightning as L

        entries |= _of_plugins(L.LightningDataModule)
    return dict(sorted(entries.items()))


def _callbacks() -> Entries:
    entries = _exported("fna_lightning.callbacks")
    if load_plugins():
        import lightning as L

        entries |= _of_plugins(L.Callback)
    return dict(sorted(entries.items()))


def _configs() -> Entries:
    from fna_lightning.config.plugins import plugin_configs
    from fna_lightning.config.resolve import shipped_configs

    shipped = shipped_configs()
    return {
        name: (OURS if name in shipped else path.parent.parent.name, path.read_text().partition("\n")[0].lstrip("# "))
        for name, path in {**plugin_configs(), **shipped}.items()
    }


def _plugins() -> Entries:
    return {plugin.name: (plugin.package, plugin.problem or f"ok: {plugin.module}") for plugin in load_plugins()}


SECTIONS = {
    "attentions": _attentions,
    "projections": _projections,
    "kernels": _kernels,
    "tasks": _tasks,
    "data": _data,
    "callbacks": _callbacks,
    "configs": _configs,
    "plugins": _plugins,
}
