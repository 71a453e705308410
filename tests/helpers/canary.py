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


def payload(*args, **kwargs):
    Path({marks!r}, "called").touch()
    return lambda *args, **kwargs: None


class Outside(torch.nn.Module):
    def __init__(self, *args, **kwargs):
        Path({marks!r}, "called").touch()
        super().__init__()
"""


class Canary:
    """A module of an attacker on the import path.

    Args:
        folder: folder of the module and of its records.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.marks = folder / "marks"
        self.marks.mkdir()
        (folder / f"{NAME}.py").write_text(SOURCE.format(marks=str(self.marks)))
        # a file of settings, for a parser that reads a file when given its name
        self.file = folder / "settings"
        self.file.write_text(f"class_path: {NAME}.payload\ninit_args: {{path: x}}\n")

    def attacks(self) -> dict[str, Any]:
        """Return values that run code if a parser imports, calls or reads what they name."""
        function = {"class_path": f"{NAME}.payload", "init_args": {"path": "x"}}
        # a function of a module that is imported already, so only the call has an effect
        directory = {"class_path": "os.mkdir", "init_args": {"path": str(self.marks / "called")}}
        return {
            "function": function,
            "function of an imported module": directory,
            "path of a function": f"{NAME}.payload",
            "module": NAME,
            "class": {"class_path": f"{NAME}.Outside"},
            "path of a class": f"{NAME}.Outside",
            "YAML": f"{{class_path: {NAME}.payload, init_args: {{path: x}}}}",
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

    def was_run(self) -> bool:
        """Return whether anything was imported or called, and delete the records."""
        marks = list(self.marks.iterdir())
        for mark in marks:
            mark.rmdir() if mark.is_dir() else mark.unlink()
        sys.modules.pop(NAME, None)
        return bool(marks)


@contextmanager
def canary(folder: Path) -> Iterator[Canary]:
    """Put a canary on the import path."""
    sys.path.insert(0, str(folder))
    try:
        yield Canary(folder)
    finally:
        sys.path.remove(str(folder))
        sys.modules.pop(NAME, None)
