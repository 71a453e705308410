"""Shipped configurations: finding them by name, and their deviations from the paper."""

import difflib
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml

from fna_lightning.errors import UsageError, one_line

NO_VALUE = "--config needs a file or the name of a shipped configuration, for example --config reviews_fna.yaml"


def shipped_configs() -> dict[str, Path]:
    """Return the shipped configurations by file name."""
    items = sorted(files("fna_lightning.configs").iterdir(), key=lambda item: item.name)
    return {item.name: Path(str(item)) for item in items if item.name.endswith(".yaml")}


def resolve_config(name: str) -> str:
    """Return ``name`` if it is a file, else the path of the configuration of that name, shipped or of a plug-in.

    Raises:
        UsageError: if there is no such configuration, or the file is not a mapping in YAML.
    """
    path = Path(name)
    if path.is_file():
        _check_syntax(path)
        return name
    if not name:
        raise UsageError(NO_VALUE)
    if path.is_dir():
        hint = f"{path / 'config.yaml'}" if (path / "config.yaml").is_file() else "a YAML file in it"
        raise UsageError(f"{name!r} is a folder, and --config takes a file; use {hint}")
    from fna_lightning.config.plugins import plugin_configs

    configs = {**plugin_configs(), **shipped_configs()}
    for candidate in (name, f"{name}.yaml"):
        if candidate in configs:
            return str(configs[candidate])
    # without the ending, which is the same for all of them
    stems = [config.removesuffix(".yaml") for config in configs]
    similar = difflib.get_close_matches(path.name.removesuffix(".yaml"), stems, n=1)
    hint = f"did you mean {similar[0]}.yaml? " if similar else ""
    raise UsageError(
        f"there is no file {name!r} and no shipped configuration of that name; {hint}`fna-lightning list` "
        "names them all"
    )


def _check_syntax(path: Path) -> None:
    """Raise a UsageError if a file is not YAML, or holds no settings."""
    # The limits are checked before the file is loaded: a small file can expand to more values than fit into memory.
    from fna_lightning.utils.limits import check_yaml_file

    text = check_yaml_file(path)
    try:
        settings = yaml.load(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except yaml.MarkedYAMLError as error:
        parts = [(error.context, error.context_mark), (error.problem, error.problem_mark)]
        problem = ", ".join(
            f"{text} at line {mark.line + 1}, column {mark.column + 1}" if mark else text
            for text, mark in parts
            if text
        )
        raise UsageError(f"{path} is not valid YAML: {problem}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} is not valid YAML: {one_line(error)}") from error
    if not isinstance(settings, dict):
        raise UsageError(f"{path} is not a configuration: it has no settings such as model, data and trainer")


def resolve_config_arguments(argv: list[str]) -> list[str]:
    """Return ``argv`` with the value of every ``--config x``, ``--config=x``, ``-c x`` or ``-cx`` resolved."""
    resolved, is_value = [], False
    for word in argv:
        if is_value:
            if word.startswith("--"):
                raise UsageError(NO_VALUE)
            resolved.append(resolve_config(word))
        elif word.startswith("--config="):
            resolved.append(f"--config={resolve_config(word.removeprefix('--config='))}")
        elif word.startswith("-c") and not word.startswith("--") and len(word) > 2:
            resolved += ["-c", resolve_config(word[2:].removeprefix("="))]
        else:
            resolved.append(word)
        is_value = word in ("--config", "-c") and not is_value
    if is_value:
        raise UsageError(NO_VALUE)
    return resolved


def config_names(argv: list[str]) -> list[str]:
    """Return the configuration files named in resolved arguments."""
    values = {i + 1 for i, word in enumerate(argv) if word in ("--config", "-c")}
    return [
        word.removeprefix("--config=") for i, word in enumerate(argv) if i in values or word.startswith("--config=")
    ]


def deviations(name: str) -> list[str]:
    """Return the deviations of a shipped configuration from the paper; empty for any other file name."""
    family, _, attention = name.removesuffix(".yaml").rpartition("_")
    table = _deviation_table()
    if name not in shipped_configs() or family not in table:
        return []
    return [*table[family], *table["attentions"].get(attention, [])]


@cache
def _deviation_table() -> dict[str, Any]:
    return yaml.safe_load((files("fna_lightning.config") / "deviations.yaml").read_text())
