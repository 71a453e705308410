"""Finds the setting whose constructor failed; jsonargparse reports the outermost object with all its settings."""

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from jsonargparse import ArgumentParser, Namespace

from fna_lightning.config.messages import explain
from fna_lightning.errors import UsageError

# errors that a constructor raises because of its arguments; any other error is most likely a bug in its class
ARGUMENT_ERRORS = (UsageError, ValueError, OSError, ImportError)


@dataclass(frozen=True)
class Failure:
    """A constructor that has raised an error.

    Attributes:
        error: the error.
        cls: the class that could not be built.
        arguments: arguments of the constructor by name.
    """

    error: Exception
    cls: type
    arguments: dict[str, Any]


class ConstructorFailures:
    """Records which constructor raised an error while a parser builds objects."""

    def __init__(self) -> None:
        self.last: Failure | None = None

    def watch(self, parser: ArgumentParser) -> None:
        """Record the failures of all classes that the parser builds, besides those with an instantiator already."""
        parser.add_instantiator(self.recorded(build), object)

    def recorded(self, instantiator: Callable[..., Any]) -> Callable[..., Any]:
        """Return an instantiator of jsonargparse that records the failures of another one."""

        def instantiate(class_type: type, *args: Any, **kwargs: Any) -> Any:
            try:
                return instantiator(class_type, *args, **kwargs)
            except Exception as error:
                self.last = Failure(error, class_type, kwargs)
                raise

        # jsonargparse looks at the signature to decide which arguments an instantiator takes
        return functools.update_wrapper(instantiate, instantiator, updated=())

    def named(self, error: Exception, config: Namespace) -> Exception:
        """Return an error that names the setting and has the constructor's own message.

        Args:
            error: the error that jsonargparse, or the constructor of an optimizer or a schedule, has raised.
            config: the parsed configuration.

        Returns:
            A UsageError if a constructor refused its arguments; ``error`` itself if no constructor has failed.
        """
        failure = self.last
        if failure is None or not any(failure.error is cause for cause in _causes(error)):
            return error
        setting, text = _setting_name(config, failure), explain(failure.error)
        if not isinstance(failure.error, ARGUMENT_ERRORS):
            return RuntimeError(f"{setting}: {type(failure.error).__name__}: {text}")
        is_named = text.partition(" ")[0] in failure.arguments
        return UsageError(f"{setting}.{text}" if is_named else f"{setting}: {text}")


def named_objects(tree: Any, name: str = "") -> Iterator[tuple[str, str | None, dict[str, Any]]]:
    """Yield the dotted name, the class path and the arguments of every object in a configuration.

    Args:
        tree: configuration or a part of it. Every mapping is an object; its class path is None without ``class_path``.
        name: dotted name of ``tree``, without ``init_args``.
    """
    if isinstance(tree, Namespace):
        tree = vars(tree)
    if isinstance(tree, list):
        for number, item in enumerate(tree):
            yield from named_objects(item, f"{name}[{number}]")
    elif isinstance(tree, dict):
        class_path = tree.get("class_path")
        arguments = tree.get("init_args") or {} if class_path else tree
        arguments = vars(arguments) if isinstance(arguments, Namespace) else arguments
        yield name, class_path, arguments
        for key, value in arguments.items():
            yield from named_objects(value, f"{name}.{key}" if name else key)


def build(class_type: type, *args: Any, **kwargs: Any) -> Any:
    """Return an object of a class: the default instantiator of jsonargparse."""
    return class_type(*args, **kwargs)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _setting_name(config: Namespace, failure: Failure) -> str:
    """Return the dotted name of the object that could not be built; several of one class differ in their values."""
    candidates = []
    for name, class_path, arguments in named_objects(config):
        same_class = class_path is not None and class_path.rpartition(".")[2] == failure.cls.__name__
        if same_class or (class_path is None and name and arguments.keys() == failure.arguments.keys()):
            same_values = all(
                isinstance(value, Namespace | list | dict) or value is None or failure.arguments.get(key) == value
                for key, value in arguments.items()
            )
            candidates.append((not same_values, name))
    return min(candidates, key=lambda candidate: candidate[0], default=(True, failure.cls.__name__))[1]
