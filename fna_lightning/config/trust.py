"""Checks the settings in an untrusted file: plain values and allowed classes only.

A configuration can name any class or function of Python, and building it calls what it names. The author of a
configuration wants that. A checkpoint, an exported folder or a run folder may come from somebody else, so its settings
are compared with the signatures of the allowed classes before anything is imported or called.
"""

import dataclasses
import datetime
import enum
import inspect
import os
import pathlib
import re
import reprlib
import types
import typing
from collections import abc
from functools import cache
from typing import Any, Literal, Union

import yaml

from fna_lightning.config.allowed_classes import ClassTable
from fna_lightning.errors import UsageError
from fna_lightning.utils.limits import check_tree

# characters of a value that a message shows
SHOWN = 100

# type of a parameter without an annotation
UNKNOWN = object()

SPEC_KEYS = frozenset({"class_path", "init_args", "dict_kwargs"})

# types for which a string is never imported: it stays a string or becomes a number, a path, ...
_PLAIN = (
    str,
    int,
    float,
    bool,
    complex,
    bytes,
    type(None),
    pathlib.PurePath,
    os.PathLike,
    datetime.timedelta,
    enum.Enum,
)
_SEQUENCES = (list, tuple, set, frozenset, abc.Iterable, abc.Collection, abc.Sequence, abc.MutableSequence, abc.Set)
_MAPPINGS = (dict, abc.Mapping, abc.MutableMapping)
_IMPORTABLE = re.compile(r"\s*[^\W\d]\w*(\s*\.\s*[^\W\d]\w*)+\s*")


class FileCheck:
    """Checks the settings of one file.

    Args:
        source: name of the file in error messages.
        table: the classes that the file may name.
        way_out: how to use the file anyway if its author is trusted, for error messages.
    """

    def __init__(self, source: str, table: ClassTable, way_out: str) -> None:
        self.source = source
        self.table = table
        self.way_out = way_out

    def check(self, value: Any, hint: Any, where: str) -> Any:
        """Return ``value`` with full paths of classes; raise a UsageError for anything that could run other code.

        Args:
            value: plain values as in JSON or YAML.
            hint: type of the parameter that takes the value.
            where: location in the file, e.g. model_config.init_args.optimizer.
        """
        check_tree(value, f"{self.source}: {where}")
        return self._checked(value, hint, where)

    def check_arguments(self, values: Any, cls: type, where: str) -> dict[str, Any]:
        """Return the arguments of a class, checked as by ``check``."""
        check_tree(values, f"{self.source}: {where}")
        return self._arguments(values, cls, where)

    def refusal(self, where: str, reason: str) -> UsageError:
        """Return the error for a location in the file."""
        return UsageError(f"{self.source}: {where} {reason}; {self.way_out}")

    def _checked(self, value: Any, hint: Any, where: str) -> Any:
        value_type = type(value)
        if value is None or value_type in (bool, int, float):
            return value
        options = alternatives(hint)
        if value_type is str:
            return self._text(value, options, where)
        if value_type in (list, tuple):
            item_hint = _union(_items(option) for option in options)
            return [self._checked(item, item_hint, f"{where}[{index}]") for index, item in enumerate(value)]
        if value_type is dict:
            return self._mapping(value, options, where)
        raise self.refusal(where, f"is a {value_type.__name__}, but only plain values can be checked")

    def _text(self, text: str, options: list[Any], where: str) -> Any:
        if all(map(is_plain, options)):
            return text
        bases = [base for option in options for base in _classes(option)]
        cls = self.table.find(text, bases)
        if cls is not None and bases:
            # jsonargparse may read a string as the name of a file; a class_path is always a class
            return {"class_path": self.table.path(cls)}
        # a union with str accepts other names, such as "ddp" or "cuda:0"
        if any(option is Any or _takes_text(option) for option in options) and not _may_be_read(text, bases):
            return text
        if _is_number(text):
            return text
        raise self.refusal(where, self._not_listed(text))

    def _mapping(self, values: dict[Any, Any], options: list[Any], where: str) -> dict[Any, Any]:
        if "class_path" in values:
            return self._spec(values, options, where)
        structured = [option for option in options if dataclasses.is_dataclass(option)]
        if len(structured) == 1 and isinstance(structured[0], type) and len(options) <= 2:
            return self._arguments(values, structured[0], where)
        hint = _union(_values(option) for option in options)
        return {self._key(key, where): self._checked(value, hint, f"{where}.{key}") for key, value in values.items()}

    def _spec(self, values: dict[Any, Any], options: list[Any], where: str) -> dict[str, Any]:
        if unknown := [key for key in values if key not in SPEC_KEYS]:
            raise self.refusal(where, f"has the key {_short(unknown[0])} beside class_path, which takes init_args only")
        name = values["class_path"]
        if type(name) is not str:
            raise self.refusal(where, f"has the class_path {_short(name)}, which must be a string")
        cls = self.table.find(name, [base for option in options for base in _classes(option)])
        if cls is None:
            raise self.refusal(where, self._not_listed(name))
        spec: dict[str, Any] = {"class_path": self.table.path(cls)}
        for part in ("init_args", "dict_kwargs"):
            if values.get(part) is not None:
                spec[part] = self._arguments(values[part], cls, f"{where}.{part}")
        return spec

    def _arguments(self, values: Any, cls: type, where: str) -> dict[str, Any]:
        if type(values) is not dict:
            raise self.refusal(where, f"must be a mapping of names to values, got {_short(values)}")
        hints = parameters(cls)
        return {
            str(self._key(key, where)): self._checked(value, hints.get(key, UNKNOWN), f"{where}.{key}")
            for key, value in values.items()
        }

    def _key(self, key: Any, where: str) -> Any:
        """Return a key; refuse a dot, which addresses another setting, and a leading __, which the parser reserves."""
        if type(key) is int:
            return key
        if type(key) is not str or not key.isidentifier() or key.startswith("__"):
            raise self.refusal(where, f"has the key {_short(key)}, which is not the name of a parameter")
        return key

    def _not_listed(self, name: str) -> str:
        return (
            f"names {_short(name)}, but a file may only name classes of fna-lightning and its plug-ins, and some of "
            "PyTorch and Lightning"
        )


def alternatives(hint: Any) -> list[Any]:
    """Return the members of a union type; the type itself if it is not a union."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return [option for part in typing.get_args(hint) for option in alternatives(part)]
    return [hint]


def is_plain(hint: Any) -> bool:
    """Whether a string given to a parameter of this type is never imported, called or read as a file of settings."""
    if hint is None or typing.get_origin(hint) is Literal:
        return True
    origin = typing.get_origin(hint) or hint
    if origin in (*_SEQUENCES, *_MAPPINGS):
        parts = [part for part in typing.get_args(hint) if part is not Ellipsis]
        return bool(parts) and all(is_plain(option) for part in parts for option in alternatives(part))
    return inspect.isclass(hint) and issubclass(hint, _PLAIN)


@cache
def parameters(cls: type) -> dict[str, Any]:
    """Return the types of the parameters of a class; unannotated ones, and those in ``**kwargs``, may be missing."""
    hints: dict[str, Any] = {}
    for base in cls.__mro__:
        init = vars(base).get("__init__")
        if not inspect.isfunction(init):
            continue
        signature = inspect.signature(init)
        annotations = _type_hints(inspect.unwrap(init))
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for name, parameter in signature.parameters.items():
            if parameter.kind not in variadic and name in annotations:
                hints.setdefault(name, annotations[name])
        if not any(parameter.kind in variadic for parameter in signature.parameters.values()):
            break
    return hints


def _type_hints(function: Any) -> dict[str, Any]:
    # some modules import the names in their annotations for type checkers only
    names = {**vars(typing), **vars(abc), **getattr(function, "__globals__", {})}
    try:
        return typing.get_type_hints(function, globalns=names)
    except (NameError, TypeError, AttributeError):
        return {}


def _union(hints: abc.Iterable[list[Any]]) -> Any:
    """Return the union of types; UNKNOWN if there is none, or if one of them is unknown."""
    options = [option for part in hints for option in part]
    if not options or any(option is UNKNOWN for option in options):
        return UNKNOWN
    return Union[tuple(options)]  # noqa: UP007 - the types are known at run time only


def _items(hint: Any) -> list[Any]:
    """Return the item types of a sequence type."""
    if (typing.get_origin(hint) or hint) not in _SEQUENCES:
        return [Any] if hint is Any else []
    return [part for part in typing.get_args(hint) if part is not Ellipsis] or [UNKNOWN]


def _values(hint: Any) -> list[Any]:
    """Return the value types of a mapping type."""
    if (typing.get_origin(hint) or hint) not in _MAPPINGS:
        return [Any] if hint is Any else []
    return list(typing.get_args(hint)[1:]) or [UNKNOWN]


def _classes(hint: Any) -> list[type]:
    """Return the classes that a value of this type is an instance of, or that a function of this type returns."""
    origin = typing.get_origin(hint)
    if origin is abc.Callable:
        returned = typing.get_args(hint)[-1:]
        return [cls for part in returned for option in alternatives(part) for cls in _classes(option)]
    if origin in _SEQUENCES or is_plain(hint):
        return []
    return [hint] if inspect.isclass(hint) else []


def _takes_text(hint: Any) -> bool:
    return (
        hint is str or (typing.get_origin(hint) is Literal) or (inspect.isclass(hint) and issubclass(hint, os.PathLike))
    )


def _may_be_read(text: str, bases: list[type]) -> bool:
    """Whether the parser could read a string as an import path, YAML, a file or a class, where it accepts a class."""
    if _IMPORTABLE.fullmatch(text) or os.path.exists(text):
        return True
    try:
        if not isinstance(yaml.safe_load(text), str | int | float | bool | None):
            return True
    except (yaml.YAMLError, ValueError, RecursionError):
        return True
    return any(cls.__name__ == text for base in bases for cls in _subclasses(base))


def _subclasses(base: type) -> abc.Iterator[type]:
    pending, visited = [base], set()
    while pending:
        cls = pending.pop()
        if cls not in visited:
            visited.add(cls)
            yield cls
            pending += type.__subclasses__(cls)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not os.path.exists(text)


def _short(value: Any) -> str:
    # reprlib abbreviates containers, which may be large
    text = repr(value) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
