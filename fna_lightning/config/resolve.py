"""Shipped configurations: finding them by name, and their deviations from the paper."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import yaml


def shipped_configs() -> dict[str, Path]:
    """Return the shipped configurations by file name."""
    items = sorted(files("fna_lightning.configs").iterdir(), key=lambda item: item.name)
    return {item.name: Path(str(item)) for item in items if item.name.endswith(".yaml")}


def resolve_config(name: str) -> str:
    """Return ``name`` if it is a file, else the path of the configuration of that name, shipped or of a plug-in."""
    if Path(name).is_file():
        # Checked before it is loaded: a small file can expand to more values than fit into memory.
        from fna_lightning.utils.limits import check_yaml_file

        check_yaml_file(Path(name))
        return name
    from fna_lightning.config.plugins import plugin_configs

    configs = {**plugin_configs(), **shipped_configs()}
    for candidate in (name, f"{name}.yaml"):
        if candidate in configs:
            return str(configs[candidate])
    raise FileNotFoundError(f"no config {name!r}: not a file, and not one of the shipped {', '.join(configs)}")


def resolve_config_arguments(argv: list[str]) -> list[str]:
    """Return ``argv`` with the value of every ``--config x``, ``--config=x``, ``-c x`` or ``-cx`` resolved."""
    resolved, is_value = [], False
    for word in argv:
        if is_value:
            resolved.append(resolve_config(word))
        elif word.startswith("--config="):
            resolved.append(f"--config={resolve_config(word.removeprefix('--config='))}")
        elif word.startswith("-c") and not word.startswith("--") and len(word) > 2:
            resolved += ["-c", resolve_config(word[2:].removeprefix("="))]
        else:
            resolved.append(word)
        is_value = word in ("--config", "-c") and not is_value
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
