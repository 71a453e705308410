"""Limits on YAML and JSON files: size, depth and number of values, checked before the content is used.

A few lines of YAML can expand to billions of values (aliases of aliases), contain themselves, or be nested so deeply
that they exceed Python's recursion limit. Such files are refused with a UsageError.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml

from fna_lightning.errors import UsageError, one_line

# a typical configuration has a few thousand bytes, a few hundred values and about ten levels
MAX_YAML_BYTES = 1 << 20
MAX_YAML_VALUES = 50_000
# config.json of an exported folder holds tokenizers of several megabytes
MAX_JSON_BYTES = 1 << 26
MAX_DEPTH = 64
# values of an object in memory; large enough for a checkpoint with thousands of parameters and its optimizer state
MAX_VALUES = 5_000_000
# a shorter text without an anchor ("&") cannot exceed a limit
HARMLESS = MAX_DEPTH // 2


def check_yaml(text: str, name: str) -> None:
    """Raise a UsageError for YAML that is too large, too deep, expands to too many values or contains itself.

    The text is read event by event, which takes linear time and no recursion. Text that is not valid YAML passes; the
    loader reports it.

    Args:
        text: the YAML.
        name: name of the text in error messages.
    """
    if len(text) > MAX_YAML_BYTES:
        raise UsageError(f"{name} has {len(text):,} characters of YAML, the limit is {MAX_YAML_BYTES:,}; shorten it")
    if len(text) < HARMLESS and "&" not in text:
        return
    counter = _Counter(name)
    try:
        for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            counter.add(event)
    except (yaml.YAMLError, UnicodeError):
        return


class _Counter:
    """Counts values and depth of a YAML document with expanded aliases, from the events of its parser."""

    def __init__(self, name: str) -> None:
        self.name = name
        # (anchor, [values, depth]) of every open collection, outermost first
        self.open: list[tuple[str | None, list[int]]] = []
        # values and depth of each anchored node
        self.anchors: dict[str, tuple[int, int]] = {}

    def add(self, event: Any) -> None:
        if isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
            self.open.append((event.anchor, [1, 1]))
            self._check(len(self.open), 1)
        elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
            anchor, (values, depth) = self.open.pop()
            self._close(anchor, values, depth)
        elif isinstance(event, yaml.ScalarEvent):
            self._close(event.anchor, 1, 0)
        elif isinstance(event, yaml.AliasEvent):
            if any(anchor == event.anchor for anchor, _ in self.open):
                raise UsageError(
                    f"{self.name} contains itself: *{event.anchor} inside &{event.anchor}; write the values out"
                )
            self._close(None, *self.anchors.get(event.anchor, (1, 0)))

    def _close(self, anchor: str | None, values: int, depth: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = values, depth
        self._check(len(self.open) + depth, values)
        if self.open:
            outer = self.open[-1][1]
            outer[0] += values
            outer[1] = max(outer[1], depth + 1)
            self._check(0, outer[0])

    def _check(self, depth: int, values: int) -> None:
        if depth > MAX_DEPTH:
            raise UsageError(f"{self.name} is nested more than {MAX_DEPTH} levels deep, which is the limit; flatten it")
        if values > MAX_YAML_VALUES:
            raise UsageError(
                f"{self.name} expands to more than {MAX_YAML_VALUES:,} values with its aliases, which is the limit; "
                "shorten it"
            )


def read_yaml(path: Path) -> Any:
    """Return the content of a YAML file as plain values.

    Raises:
        UsageError: if the file cannot be read or exceeds a limit.
    """
    text = check_yaml_file(path)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {one_line(error)}; correct it") from error


def check_yaml_file(path: Path) -> str:
    """Return the text of a YAML file after checking it against the limits."""
    text = _read_text(path, MAX_YAML_BYTES, "YAML")
    check_yaml(text, str(path))
    return text


def read_json(path: Path, way_out: str) -> Any:
    """Return the content of a JSON file.

    Args:
        path: the file.
        way_out: what to do about a damaged file, for the error message.

    Raises:
        UsageError: if the file cannot be read or exceeds a limit.
    """
    text = _read_text(path, MAX_JSON_BYTES, "JSON")
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be read as JSON; {way_out}") from error
    except ValueError as error:
        raise UsageError(f"{path} cannot be read as JSON: {one_line(error)}; {way_out}") from error
    check_tree(tree, str(path))
    return tree


def check_tree(tree: Any, name: str) -> None:
    """Raise a UsageError for nested mappings, lists and tuples that are too deep or expand to too many values.

    A tree that contains itself is too deep.
    """
    values, depth = 1, 0
    level = [tree]
    while level:
        inner: list[Any] = []
        nested = False
        for value in level:
            if isinstance(value, Mapping):
                nested = True
                inner.extend(value.values())
                # keys can be nested tuples
                inner.extend(key for key in value if isinstance(key, tuple | frozenset))
            elif isinstance(value, list | tuple | set | frozenset):
                nested = True
                inner.extend(value)
            if values + len(inner) > MAX_VALUES:
                raise UsageError(
                    f"{name} expands to more than {MAX_VALUES:,} values, which is the limit; do not trust it"
                )
        values += len(inner)
        depth += nested
        if depth > MAX_DEPTH:
            raise UsageError(f"{name} is nested more than {MAX_DEPTH} levels deep, which is the limit; do not trust it")
        level = inner


def limit_jsonargparse() -> None:
    """Make jsonargparse check these limits for all YAML that it loads: files, and strings that it parses as YAML."""
    import jsonargparse

    load: Callable[..., Any] = jsonargparse.get_loader("yaml")
    if getattr(load, "has_limits", False):
        return

    def load_limited(text: str) -> Any:
        beginning = text[:40].split("\n")[0]
        check_yaml(text, f"the text {beginning!r}...")
        try:
            return load(text)
        except RecursionError as error:
            raise UsageError(
                f"the text {beginning!r}... is nested too deeply to be read as YAML; flatten it"
            ) from error

    load_limited.has_limits = True  # type: ignore[attr-defined]
    jsonargparse.set_loader("yaml", load_limited, (yaml.YAMLError,))


def _read_text(path: Path, limit: int, file_format: str) -> str:
    try:
        size = path.stat().st_size
        if size > limit:
            raise UsageError(f"{path} has {size:,} bytes, the limit for {file_format} is {limit:,}; use a smaller file")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(
            f"{path} is not UTF-8 (byte {error.start + 1}); {file_format} must be, so convert it"
        ) from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from error
