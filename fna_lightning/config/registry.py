"""Registration of the built-in classes, so that a configuration can name them without their module."""

import importlib

# importing one of these packages lets jsonargparse find its classes by bare name
PACKAGES = ("attention", "nn", "tasks", "callbacks")


def register_builtins() -> None:
    """Import every package whose classes a configuration may name.

    This is the only module of ``config`` that imports tasks and callbacks.
    """
    for package in PACKAGES:
        importlib.import_module(f"fna_lightning.{package}")


def builtin_names() -> list[str]:
    """Return the bare names of the classes and functions that the packages export."""
    return [name for package in PACKAGES for name in importlib.import_module(f"fna_lightning.{package}").__all__]
