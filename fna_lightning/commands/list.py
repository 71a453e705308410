"""Name what there is: attentions, kernels, tasks, data, callbacks, configurations.

Example:
  fna-lightning list
  fna-lightning list configs
"""

import argparse
import inspect
import json
from pathlib import Path

from rich.console import Console
from rich.table import Table


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("what", nargs="?", choices=SECTIONS, help="only this section")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the same as JSON")


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    found = {name: SECTIONS[name]() for name in ([args.what] if args.what else SECTIONS)}
    console = Console(soft_wrap=True)
    for title, entries in found.items():
        table = Table("name", "", title=title, title_justify="left", show_header=False)
        for name, what in entries.items():
            table.add_row(name, what)
        console.print(table)
    if args.json:
        args.json.write_text(json.dumps(found, indent=2) + "\n")
    return 0


def _subclasses(base: type) -> dict[str, str]:
    """Return the concrete classes that extend ``base`` and are imported, by name with their first sentence."""
    found: dict[str, str] = {}
    todo: list[type] = list(base.__subclasses__())
    while todo:
        one = todo.pop()
        todo += one.__subclasses__()
        if not inspect.isabstract(one) and not one.__module__.startswith("lightning."):
            found[one.__name__] = (inspect.getdoc(one) or "").partition("\n")[0]
    return dict(sorted(found.items()))


def _attentions() -> dict[str, str]:
    from fna_lightning.attention import Attention

    return _subclasses(Attention)


def _projections() -> dict[str, str]:
    from fna_lightning.attention import Projection

    return _subclasses(Projection)


def _kernels() -> dict[str, str]:
    from fna_lightning.attention import available_kernels

    return available_kernels()


def _tasks() -> dict[str, str]:
    import fna_lightning.tasks  # noqa: F401 - importing is registering
    from fna_lightning.task import Task

    return _subclasses(Task)


def _data() -> dict[str, str]:
    import lightning as L

    import fna_lightning.tasks  # noqa: F401 - importing is registering

    return _subclasses(L.LightningDataModule)


def _callbacks() -> dict[str, str]:
    import lightning as L

    import fna_lightning.callbacks  # noqa: F401 - importing is registering

    return _subclasses(L.Callback)


def _configs() -> dict[str, str]:
    from fna_lightning.shipped import shipped_configs

    return {name: path.read_text().partition("\n")[0].lstrip("# ") for name, path in shipped_configs().items()}


SECTIONS = {
    "attentions": _attentions,
    "projections": _projections,
    "kernels": _kernels,
    "tasks": _tasks,
    "data": _data,
    "callbacks": _callbacks,
    "configs": _configs,
}
