"""Finding a shipped configuration by its bare name."""

from importlib.resources import files
from pathlib import Path


def shipped_configs() -> dict[str, Path]:
    """Return the shipped configurations by file name."""
    found = files("fna_lightning.configs").iterdir()
    return {
        item.name: Path(str(item)) for item in sorted(found, key=lambda item: item.name) if item.name.endswith(".yaml")
    }


def resolve_config(name: str) -> str:
    """Return ``name`` if it is a file, else the path of the configuration of that name: shipped, or a plug-in's."""
    if Path(name).is_file():
        # before anybody loads it: a small file can stand for more values than fit into memory
        from fna_lightning.utils.limits import check_yaml_file

        check_yaml_file(Path(name))
        return name
    from fna_lightning.config.plugins import plugin_configs

    shipped = {**plugin_configs(), **shipped_configs()}
    for candidate in (name, f"{name}.yaml"):
        if candidate in shipped:
            return str(shipped[candidate])
    raise FileNotFoundError(f"no config {name!r}: not a file, and not one of the shipped {', '.join(shipped)}")


def resolve_config_arguments(argv: list[str]) -> list[str]:
    """Return ``argv`` with the value of every ``--config x``, ``--config=x``, ``-c x`` or ``-cx`` resolved."""
    resolved, expects = [], False
    for word in argv:
        if expects:
            resolved.append(resolve_config(word))
        elif word.startswith("--config="):
            resolved.append(f"--config={resolve_config(word.removeprefix('--config='))}")
        elif word.startswith("-c") and not word.startswith("--") and len(word) > 2:
            resolved += ["-c", resolve_config(word[2:].removeprefix("="))]
        else:
            resolved.append(word)
        expects = word in ("--config", "-c") and not expects
    return resolved


def config_names(argv: list[str]) -> list[str]:
    """Return the configuration files named in resolved arguments."""
    after = {i + 1 for i, word in enumerate(argv) if word in ("--config", "-c")}
    return [word.removeprefix("--config=") for i, word in enumerate(argv) if i in after or word.startswith("--config=")]


def deviations(name: str) -> list[str]:
    """Return what the head of a shipped configuration says under "Deviations from the paper", one entry each."""
    path = shipped_configs().get(name)
    if path is None:
        return []
    found: list[str] = []
    inside = False
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        text = line.lstrip("#").strip()
        if text.startswith("Deviations from the paper"):
            inside = True
        elif inside and text.startswith("- "):
            found.append(text.removeprefix("- "))
        elif inside and found and text:
            found[-1] = f"{found[-1]} {text}"
    return found
