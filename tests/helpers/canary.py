"""A module that records that it was imported, with a function and a class that record that they were called."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAME = "canary_of_the_tests"
SOURCE = """
from pathlib import Path

import torch

Path({marks!r}, "imported").touch()


def strike(*args, **kwargs):
    Path({marks!r}, "called").touch()
    return lambda *args, **kwargs: None


class Outside(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        Path({marks!r}, "called").touch()
        super().__init__()
"""


class Canary:
    """What an attacker has put on the path of Python.

    Args:
        folder: holds the module and what it has recorded.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        (folder / f"{NAME}.py").write_text(SOURCE.format(marks=str(self.marks)))
        # a file of settings, for a parser that reads the file a text names
        self.file = folder / "settings"
        self.file.write_text(f"class_path: {NAME}.strike\ninit_args: {{path: x}}\n")

    def attacks(self) -> dict[str, Any]:
        """Return values that run code where a parser imports, calls or reads what they name."""
        function = {"class_path": f"{NAME}.strike", "init_args": {"path": "x"}}
        # a module that is imported already, so that the call alone has an effect
        directory = {"class_path": "os.mkdir", "init_args": {"path": str(self.marks / "called")}}
        return {
            "function": function,
            "function of an imported module": directory,
            "path of a function": f"{NAME}.strike",
            "module": NAME,
            "class": {"class_path": f"{NAME}.Outside"},
            "path of a class": f"{NAME}.Outside",
            "YAML": f"{{class_path: {NAME}.strike, init_args: {{path: x}}}}",
            "file": str(self.file),
            "in a list": [function],
            "in a mapping": {"value": function},
            "without a class": {"init_args": {"value": function}},
            "beside a class": {"class_path": "torch.nn.Identity", "dict_kwargs": {"value": function}},
        }

    def check(self) -> None:
        """Fail if anything was imported or called."""
        assert NAME not in sys.modules
        assert not list(self.marks.iterdir())

    def went_off(self) -> bool:
        """Return whether anything was imported or called, and forget it."""
        marks = list(self.marks.iterdir())
        for mark in marks:
            mark.rmdir() if mark.is_dir() else mark.unlink()
        sys.modules.pop(NAME, None)
        return bool(marks)


@contextmanager
def canary(folder: Path) -> Iterator[Canary]:
    """Put a canary on the path of Python."""
    sys.path.insert(0, str(folder))
    try:
        yield Canary(folder)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(NAME, None)
