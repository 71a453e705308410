"""What a file of unknown origin may describe: plain values, and classes of a list.

A configuration can name any function or class of Python, and building it calls what it names. That is what the author
of a configuration wants. A checkpoint, an exported folder or a run folder may come from somebody else, so what they
describe is compared with the signatures of the listed classes first, before anything is imported or called.
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

# characters of a value in a message
SHOWN = 100

# a parameter whose type is not known may be of any type
UNKNOWN = object()

SPEC_KEYS = frozenset({"class_path", "init_args", "dict_kwargs"})

# types for which a text stays a text, or becomes a number, a path or the like
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
    """Checks what one file describes.

    Args:
        source: what messages call the file.
        table: the classes it may name.
        way_out: how a person who knows the author of the file can use it all the same.
    """

    def __init__(self, source: str, table: ClassTable, way_out: str) -> None:
        self.source = source
        self.table = table
        self.way_out = way_out

    def check(self, value: Any, hint: Any, where: str) -> Any:
        """Return ``value`` with every class by its full path; anything that could run other code is refused.

        Args:
            value: plain values, as JSON or YAML hold them.
            hint: the type of the parameter that takes it.
            where: its place in the file, e.g. model_config.init_args.optimizer.
        """
        check_tree(value, f"{self.source}: {where}")
        return self._checked(value, hint, where)

    def check_arguments(self, values: Any, kind: type, where: str) -> dict[str, Any]:
        """Return arguments of a class, checked like ``check``."""
        check_tree(values, f"{self.source}: {where}")
        return self._arguments(values, kind, where)

    def refusal(self, where: str, reason: str) -> UsageError:
        """Return the error that a place in the file causes."""
        return UsageError(f"{self.source}: {where} {reason}; {self.way_out}")

    def _checked(self, value: Any, hint: Any, where: str) -> Any:
        kind = type(value)
        if value is None or kind in (bool, int, float):
            return value
        options = alternatives(hint)
        if kind is str:
            return self._text(value, options, where)
        if kind in (list, tuple):
            item = _one_of(_items(option) for option in options)
            return [self._checked(one, item, f"{where}[{number}]") for number, one in enumerate(value)]
        if kind is dict:
            return self._mapping(value, options, where)
        raise self.refusal(where, f"is a {kind.__name__}, but only plain values can be checked")

    def _text(self, text: str, options: list[Any], where: str) -> Any:
        if all(map(is_plain, options)):
            return text
        bases = [base for option in options for base in _classes(option)]
        kind = self.table.find(text, bases)
        if kind is not None and bases:
            # a text could also be the name of a file to read; a class_path is always a class
            return {"class_path": self.table.path(kind)}
        # a union with str takes names of its own, such as "ddp" or "cuda:0"
        if any(option is Any or _takes_text(option) for option in options) and not _may_be_read(text, bases):
            return text
        if _is_number(text):
            return text
        raise self.refusal(where, self._not_listed(text))

    def _mapping(self, values: dict[Any, Any], options: list[Any], where: str) -> dict[Any, Any]:
        if "class_path" in values:
            return self._spec(values, options, where)
        named = [option for option in options if dataclasses.is_dataclass(option)]
        if len(named) == 1 and isinstance(named[0], type) and len(options) <= 2:
            return self._arguments(values, named[0], where)
        item = _one_of(_values(option) for option in options)
        return {self._key(key, where): self._checked(value, item, f"{where}.{key}") for key, value in values.items()}

    def _spec(self, values: dict[Any, Any], options: list[Any], where: str) -> dict[str, Any]:
        if more := [key for key in values if key not in SPEC_KEYS]:
            raise self.refusal(where, f"has the key {_short(more[0])} beside class_path, which takes init_args only")
        name = values["class_path"]
        if type(name) is not str:
            raise self.refusal(where, f"has the class_path {_short(name)}, which must be a text")
        kind = self.table.find(name, [base for option in options for base in _classes(option)])
        if kind is None:
            raise self.refusal(where, self._not_listed(name))
        spec: dict[str, Any] = {"class_path": self.table.path(kind)}
        for part in ("init_args", "dict_kwargs"):
            if values.get(part) is not None:
                spec[part] = self._arguments(values[part], kind, f"{where}.{part}")
        return spec

    def _arguments(self, values: Any, kind: type, where: str) -> dict[str, Any]:
        if type(values) is not dict:
            raise self.refusal(where, f"must be a mapping of names to values, got {_short(values)}")
        hints = parameters(kind)
        return {
            str(self._key(key, where)): self._checked(value, hints.get(key, UNKNOWN), f"{where}.{key}")
            for key, value in values.items()
        }

    def _key(self, key: Any, where: str) -> Any:
        """Return a key; one with a dot would reach into other places, and one with underscores into the parser."""
        if type(key) is int:
            return key
        if type(key) is not str or not key.isidentifier() or key.startswith("__"):
            raise self.refusal(where, f"has the key {_short(key)}, which is not the name of a parameter")
        return key

    def _not_listed(self, name: str) -> str:
        return (
            f"names {_short(name)}, but a file may only name classes of fna-lightning, of installed plug-ins and some "
            "of PyTorch and Lightning"
        )


def alternatives(hint: Any) -> list[Any]:
    """Return the types of which a value may be any."""
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return alternatives(typing.get_args(hint)[0])
    if origin in (Union, types.UnionType):
        return [option for part in typing.get_args(hint) for option in alternatives(part)]
    return [hint]


def is_plain(hint: Any) -> bool:
    """Whether a text given to a parameter of this type is never imported, called or read as a file of settings."""
    if hint is None or typing.get_origin(hint) is Literal:
        return True
    origin = typing.get_origin(hint) or hint
    if origin in (*_SEQUENCES, *_MAPPINGS):
        parts = [part for part in typing.get_args(hint) if part is not Ellipsis]
        return bool(parts) and all(is_plain(option) for part in parts for option in alternatives(part))
    return inspect.isclass(hint) and issubclass(hint, _PLAIN)


@cache
def parameters(kind: type) -> dict[str, Any]:
    """Return the types of the parameters of a class; those without a type, or behind ``**kwargs``, may be missing."""
    hints: dict[str, Any] = {}
    for base in kind.__mro__:
        init = vars(base).get("__init__")
        if not inspect.isfunction(init):
            continue
        signature = inspect.signature(init)
        types_of = _type_hints(inspect.unwrap(init))
        variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        for name, parameter in signature.parameters.items():
            if parameter.kind not in variadic and name in types_of:
                hints.setdefault(name, types_of[name])
        if not any(parameter.kind in variadic for parameter in signature.parameters.values()):
            break
    return hints


def _type_hints(function: Any) -> dict[str, Any]:
    # some modules import the names of their annotations for type checkers only
    names = {**vars(typing), **vars(abc), **getattr(function, "__globals__", {})}
    try:
        return typing.get_type_hints(function, globalns=names)
    except (NameError, TypeError, AttributeError):
        return {}


def _one_of(hints: abc.Iterable[list[Any]]) -> Any:
    """Return the union of types; an unknown one if there is none."""
    options = [option for part in hints for option in part]
    if not options or any(option is UNKNOWN for option in options):
        return UNKNOWN
    return Union[tuple(options)]  # noqa: UP007 - of types that are known only now


def _items(hint: Any) -> list[Any]:
    """Return the types of the items of a sequence type."""
    if (typing.get_origin(hint) or hint) not in _SEQUENCES:
        return [Any] if hint is Any else []
    return [part for part in typing.get_args(hint) if part is not Ellipsis] or [UNKNOWN]


def _values(hint: Any) -> list[Any]:
    """Return the types of the values of a mapping type."""
    if (typing.get_origin(hint) or hint) not in _MAPPINGS:
        return [Any] if hint is Any else []
    return list(typing.get_args(hint)[1:]) or [UNKNOWN]


def _classes(hint: Any) -> list[type]:
    """Return the classes of which a value of this type is an instance, or which a function of this type returns."""
    origin = typing.get_origin(hint)
    if origin is abc.Callable:
        returned = typing.get_args(hint)[-1:]
        return [kind for part in returned for option in alternatives(part) for kind in _classes(option)]
    if origin in _SEQUENCES or is_plain(hint):
        return []
    return [hint] if inspect.isclass(hint) else []


def _takes_text(hint: Any) -> bool:
    return (
        hint is str or (typing.get_origin(hint) is Literal) or (inspect.isclass(hint) and issubclass(hint, os.PathLike))
    )


def _may_be_read(text: str, bases: list[type]) -> bool:
    """Whether a text where a class is accepted too could be taken for a path to import, YAML, a file or a class."""
    if _IMPORTABLE.fullmatch(text) or os.path.exists(text):
        return True
    try:
        if not isinstance(yaml.safe_load(text), str | int | float | bool | None):
            return True
    except (yaml.YAMLError, ValueError, RecursionError):
        return True
    return any(kind.__name__ == text for base in bases for kind in _subclasses(base))


def _subclasses(base: type) -> abc.Iterator[type]:
    todo, seen = [base], set()
    while todo:
        kind = todo.pop()
        if kind not in seen:
            seen.add(kind)
            yield kind
            todo += type.__subclasses__(kind)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return not os.path.exists(text)


def _short(value: Any) -> str:
    # of containers only as much as is shown: they may be large
    text = repr(value) if isinstance(value, str) else reprlib.repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}..."
