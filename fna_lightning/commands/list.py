"""Name what there is and where it comes from: attentions, kernels, tasks, data, callbacks, configurations, plug-ins.

Example:
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

# name: where it comes from, what it is
Entries = dict[str, tuple[str, str]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("what", nargs="?", choices=SECTIONS, help="only this section")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    found = {name: SECTIONS[name]() for name in ([args.what] if args.what else SECTIONS)}
    console = Console(soft_wrap=True)
    for title, entries in found.items():
        table = Table("name", "from", "", title=title, title_justify="left", show_header=False)
        for name, (source, what) in entries.items():
            table.add_row(name, source, what)
        console.print(table)
    if args.json:
        plain: dict[str, Any] = {
            title: {name: what for name, (_, what) in entries.items()} for title, entries in found.items()
        }
        plain["from"] = {title: {name: one for name, (one, _) in entries.items()} for title, entries in found.items()}
        args.json.write_text(json.dumps(plain, indent=2) + "\n")
    return 0


def _subclasses(base: type) -> Entries:
    """Return the concrete classes that extend ``base`` and are imported, by name with their first sentence."""
    found: Entries = {}
    todo: list[type] = list(base.__subclasses__())
    while todo:
        one = todo.pop()
        todo += one.__subclasses__()
        if not inspect.isabstract(one) and not one.__module__.startswith("lightning."):
            found[one.__name__] = origin(one), (inspect.getdoc(one) or "").partition("\n")[0]
    return dict(sorted(found.items()))


def _attentions() -> Entries:
    from fna_lightning.attention import Attention

    return _subclasses(Attention)


def _projections() -> Entries:
    from fna_lightning.attention import Projection

    return _subclasses(Projection)


def _kernels() -> Entries:
    from fna_lightning.attention import available_kernels

    return {name: (OURS, what) for name, what in available_kernels().items()}


def _tasks() -> Entries:
    import fna_lightning.tasks  # noqa: F401 - importing is registering
    from fna_lightning.task import Task

    return _subclasses(Task)


def _data() -> Entries:
    import lightning as L

    import fna_lightning.tasks  # noqa: F401 - importing is registering

    return _subclasses(L.LightningDataModule)


def _callbacks() -> Entries:
    import lightning as L

    import fna_lightning.callbacks  # noqa: F401 - importing is registering

    return _subclasses(L.Callback)


def _configs() -> Entries:
    from fna_lightning.config.plugins import plugin_configs
    from fna_lightning.config.resolve import shipped_configs

    ours = shipped_configs()
    return {
        name: (OURS if name in ours else path.parent.parent.name, path.read_text().partition("\n")[0].lstrip("# "))
        for name, path in {**plugin_configs(), **ours}.items()
    }


def _plugins() -> Entries:
    return {one.name: (one.package, one.problem or f"ok: {one.module}") for one in load_plugins()}


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
