"""Suggestions for misspelled settings and classes."""

import difflib
import inspect
import sys
from collections.abc import Iterator, Mapping
from typing import Any, get_args, get_type_hints

import lightning as L

from fna_lightning.config.registry import PACKAGES, builtin_names
from fna_lightning.task import Task

# what other programs call a setting
SYNONYMS = {
    "learning_rate": "lr",
    "batchsize": "batch-size",
    "bs": "batch-size",
    "num_epochs": "epochs",
    "n_epochs": "epochs",
    "random_seed": "seed",
    "gpus": "trainer.devices",
    "num_gpus": "trainer.devices",
    "workers": "data.num_workers",
    "ckpt": "ckpt_path",
    "checkpoint": "ckpt_path",
}
MAX_SUGGESTIONS = 3
# longer lists of classes do not help
MAX_CLASSES = 12


def closest(name: str, names: list[str]) -> list[str]:
    """Return at most one of the names: the most similar one, if it is similar enough to be meant."""
    return difflib.get_close_matches(name, names, n=1)


def closest_settings(name: str, settings: Mapping[str, str], *, misspelled: bool = True) -> str:
    """Return the settings that a misspelled or misplaced name may mean; empty if there is none.

    Args:
        name: the name, with or without its section, e.g. "depth" or "model.depth".
        settings: how to write each setting on the command line, by dotted name.
        misspelled: whether to suggest settings with a similar name, and not only those of the same name elsewhere.
    """
    name = SYNONYMS.get(name.replace("-", "_"), name)
    by_flag = {flag.partition(" ")[0].lstrip("-"): flag for flag in settings.values()}
    tails: dict[str, list[str]] = {}
    for setting, flag in settings.items():
        tails.setdefault(setting.rpartition(".")[2], []).append(flag)
    for key in (name, name.replace("_", "-")):
        if key in by_flag:
            return by_flag[key]
    tail = name.replace("-", "_").rpartition(".")[2]
    flags = tails.get(tail, [])
    if not flags and misspelled:
        # a name with its section is compared with whole names, so that the section counts
        names = [*by_flag, *settings] if "." in name else [*by_flag, *tails]
        for similar in closest(name, names):
            flags = [by_flag[similar]] if similar in by_flag else tails.get(similar, [settings.get(similar, "")])
    return " or ".join(flags[:MAX_SUGGESTIONS])


def class_advice(name: str, owner: str | None, keys: list[str]) -> str:
    """Return advice for a class that does not exist, to be appended to a message.

    Args:
        name: name of the missing class, bare or with its module.
        owner: class path of the object that the class was meant for; None for a section of the configuration.
        keys: name of the setting, of which the last element is a dotted name within the owner.
    """
    module, _, bare = name.rpartition(".")
    if module in sys.modules and (similar := closest(bare, list(vars(sys.modules[module])))):
        return f"; did you mean {module}.{similar[0]}?"
    bases = _base_classes(owner, keys)
    fitting = [name for name, cls in _builtin_classes() if issubclass(cls, bases)] if bases else builtin_names()
    subclasses = {cls.__name__ for base in bases for cls in _subclasses(base)}
    similar = closest(bare, [*fitting, *sorted(subclasses)])
    hint = f"did you mean {similar[0]!r}? " if similar else ""
    if bases and 0 < len(fitting) <= MAX_CLASSES:
        return f"; {hint}{'C' if hint else 'c'}hoose one of {', '.join(sorted(fitting))}, or write package.module.Class"
    if bases and not fitting:
        return f"; {hint}{'W' if hint else 'w'}rite other classes as package.module.Class"
    return f"; {hint}`fna-lightning list` names the classes; write other classes as package.module.Class"


def parameters(class_path: str, group: str) -> list[str]:
    """Return the parameters of an imported class, or of the dataclass that is its parameter ``group``.

    Nothing is imported, because a report may quote any name.

    Args:
        class_path: dotted path of the class.
        group: dotted path of parameters whose types are dataclasses, e.g. "vit.encoder"; empty for the class itself.
    """
    cls = imported(class_path)
    for part in filter(None, group.split(".")):
        cls = get_type_hints(cls.__init__).get(part) if inspect.isclass(cls) else None
    if not inspect.isclass(cls):
        return []
    # an optimizer gets "params" from its task
    hidden = ("args", "kwargs", "params")
    return [parameter for parameter in inspect.signature(cls).parameters if parameter not in hidden]


def imported(class_path: str) -> Any:
    """Return the object of that dotted path if its module is imported already, else None."""
    module, _, name = class_path.rpartition(".")
    return getattr(sys.modules.get(module), name, None)


def _base_classes(owner: str | None, keys: list[str]) -> tuple[type, ...]:
    """Return the classes that a setting accepts; empty if they are not known."""
    if not keys:
        return ()
    path = keys[-1]
    if owner is None:
        section, _, path = path.partition(".")
        if not path:
            return {"model": (Task,), "data": (L.LightningDataModule,)}.get(section, ())
        owner = "lightning.pytorch.Trainer" if section == "trainer" else ""
    hint: Any = imported(owner)
    for part in path.split("."):
        hint = get_type_hints(hint.__init__).get(part) if inspect.isclass(hint) else None
    return tuple(cls for cls in _classes_in(hint) if cls is not type(None))


def _classes_in(hint: Any) -> Iterator[type]:
    """Yield the classes in a type; those that a callable returns, too."""
    if arguments := get_args(hint):
        for argument in arguments:
            if not isinstance(argument, list):
                yield from _classes_in(argument)
    elif inspect.isclass(hint):
        yield hint


def _builtin_classes() -> list[tuple[str, type]]:
    """Return the classes of this package that can be built, with their bare names."""
    paths = [f"fna_lightning.{package}.{name}" for name in builtin_names() for package in PACKAGES]
    classes = [(path.rpartition(".")[2], imported(path)) for path in paths]
    return [(name, cls) for name, cls in classes if inspect.isclass(cls) and not inspect.isabstract(cls)]


def _subclasses(base: type) -> Iterator[type]:
    children: list[type] = base.__subclasses__()
    for cls in children:
        yield cls
        yield from _subclasses(cls)
