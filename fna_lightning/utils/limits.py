"""Limits for YAML and JSON from a file: size, depth and number of values, checked before anything is built of it.

A few lines of YAML can stand for billions of values (aliases of aliases), contain themselves, or be nested so deeply
that Python's stack ends. All of that is refused with one sentence.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import jsonargparse
import yaml

from fna_lightning.errors import UsageError

# a configuration has a few thousand bytes, a few hundred values and about ten levels
MAX_YAML_BYTES = 1 << 20
MAX_YAML_VALUES = 50_000
# config.json of an exported folder holds tokenizers, whose text has megabytes
MAX_JSON_BYTES = 1 << 26
MAX_DEPTH = 64
# values of a tree that is in memory: a checkpoint of thousands of parameters with its optimiser
MAX_VALUES = 5_000_000
# no text shorter than this can do harm unless it has an anchor, the sign "&"
HARMLESS = MAX_DEPTH // 2


def check_yaml(text: str, name: str) -> None:
    """Refuse YAML that is too large, too deep, stands for too many values or contains itself.

    Reads it event by event, so it takes time in proportion to the text and no recursion. What is no YAML at all passes:
    whoever loads it reports that.

    Args:
        text: the YAML.
        name: what errors call it.

    Raises:
        UsageError: with the limit it exceeds.
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
    """Values and depth of a YAML document with every alias written out, from the events of its parser."""

    def __init__(self, name: str) -> None:
        self.name = name
        # [anchor, values, depth] of every collection that is open, outermost first
        self.open: list[tuple[str | None, list[int]]] = []
        # values and depth of what an anchor stands for
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
                raise UsageError(f"{self.name} contains itself: *{event.anchor} inside &{event.anchor}; write it out")
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
                f"{self.name} stands for more than {MAX_YAML_VALUES:,} values once its aliases are written out, which "
                "is the limit; shorten it"
            )


def read_yaml(path: Path) -> Any:
    """Return what a YAML file holds, as plain values.

    Raises:
        UsageError: if it cannot be read, or exceeds a limit.
    """
    text = check_yaml_file(path)
    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise UsageError(f"{path} cannot be read as YAML: {_one_line(error)}; correct it") from error


def check_yaml_file(path: Path) -> str:
    """Return the text of a YAML file that keeps the limits."""
    text = _read_text(path, MAX_YAML_BYTES, "YAML")
    check_yaml(text, str(path))
    return text


def read_json(path: Path, way_out: str) -> Any:
    """Return what a JSON file holds.

    Args:
        path: the file.
        way_out: what to do about a damaged one.

    Raises:
        UsageError: if it cannot be read, or exceeds a limit.
    """
    text = _read_text(path, MAX_JSON_BYTES, "JSON")
    try:
        tree = json.loads(text)
    except RecursionError as error:
        raise UsageError(f"{path} is nested too deeply to be read as JSON; {way_out}") from error
    except ValueError as error:
        raise UsageError(f"{path} cannot be read as JSON: {_one_line(error)}; {way_out}") from error
    check_tree(tree, str(path))
    return tree


def check_tree(tree: Any, name: str) -> None:
    """Refuse mappings, lists and tuples that are too deep, contain themselves or, written out, have too many values.

    Raises:
        UsageError: with the limit that is exceeded.
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
                # keys can be tuples of tuples
                inner.extend(key for key in value if isinstance(key, tuple | frozenset))
            elif isinstance(value, list | tuple | set | frozenset):
                nested = True
                inner.extend(value)
            if values + len(inner) > MAX_VALUES:
                raise UsageError(
                    f"{name} stands for more than {MAX_VALUES:,} values, which is the limit; do not trust it"
                )
        values += len(inner)
        depth += nested
        if depth > MAX_DEPTH:
            raise UsageError(f"{name} is nested more than {MAX_DEPTH} levels deep, which is the limit; do not trust it")
        level = inner


def limit_jsonargparse() -> None:
    """Make jsonargparse keep these limits in every YAML text it loads: files, their parts, values that are texts."""
    load: Callable[..., Any] = jsonargparse.get_loader("yaml")
    if getattr(load, "keeps_limits", False):
        return

    def limited(text: str) -> Any:
        shown = text[:40].split("\n")[0]
        check_yaml(text, f"the text {shown!r}...")
        try:
            return load(text)
        except RecursionError as error:
            raise UsageError(f"the text {shown!r}... is nested too deeply to be read as YAML; flatten it") from error

    limited.keeps_limits = True  # type: ignore[attr-defined]
    jsonargparse.set_loader("yaml", limited, (yaml.YAMLError,))


def _read_text(path: Path, limit: int, kind: str) -> str:
    try:
        size = path.stat().st_size
        if size > limit:
            raise UsageError(f"{path} has {size:,} bytes, the limit for {kind} is {limit:,}; give a smaller file")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"{path} is not UTF-8 (byte {error.start + 1}); {kind} must be, so convert it") from error
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the path and its permissions") from error


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())
