"""The command line of a run: short flags become long settings, and mistakes get a message that names the right ones."""

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from fna_lightning.config.construction import named_objects
from fna_lightning.config.parser_report import parser_message
from fna_lightning.config.resolve import config_names
from fna_lightning.errors import UsageError
from fna_lightning.training.fit_help import SHORT_FLAGS
from fna_lightning.training.parser import OneLineParser, ParserError
from fna_lightning.training.short_flags import long_names, split_short_flags
from fna_lightning.utils.limits import read_yaml

log = logging.getLogger(__name__)

CALLBACKS = "--trainer.callbacks"


def parse_command_line(parser: OneLineParser, argv: list[str]) -> Namespace:
    """Return the parsed configuration of a run.

    Args:
        parser: parser with Lightning's subcommands.
        argv: arguments, of which the first one is the subcommand.

    Raises:
        UsageError: if an argument is wrong.
    """
    argv, flags = split_short_flags(argv)
    names: dict[str, list[str]] = {}
    try:
        if flags and not any(".help" in word for word in argv):
            # The names that the short flags stand for depend on the configuration. It is parsed again with them at the
            # end, where they override every other setting.
            config = parser.parse_args([word for word in argv if not _exits(word)])[argv[0]]
            names = {flag.name: long_names(flag.name, config, argv[0]) for flag in flags}
            argv = [*argv, *(f"--{name}={flag.value}" for flag in flags for name in names[flag.name])]
        config = parser.parse_args(argv)
    except ParserError as error:
        message = parser_message(error.report, known_settings(parser, argv))
        for flag, settings in names.items():
            for name in settings:
                message = message.replace(f"{name}: ", f"--{flag}: ", 1)
        raise UsageError(message) from error
    _warn_of_replaced_callbacks(argv, config[argv[0]])
    return config


def known_settings(parser: OneLineParser, argv: list[str]) -> dict[str, str]:
    """Return how to write every setting of the configuration files on the command line, by dotted name.

    Short flags come with the name of the setting, for example "--alpha (model.attention.alpha)".
    """
    settings = {"config": "--config"}
    files = [f"--config={name}" for name in config_names(argv)]
    try:
        config = parser.parse_args([argv[0], *files])[argv[0]]
    except UsageError:
        # there are no files, or they are wrong themselves; the names of the shipped tasks are most likely right
        return settings | {name: f"--{flag} ({name})" for flag, (name, _) in SHORT_FLAGS.items()}
    settings |= {name: f"--{name}" for name in _names(config)}
    for flag in SHORT_FLAGS:
        try:
            names = long_names(flag, config, argv[0])
        except UsageError:
            continue
        settings |= {name: f"--{flag} ({name})" for name in names}
    return settings


def _exits(word: str) -> bool:
    """Whether an argument makes the parser print something and exit."""
    return word in ("-h", "--help") or word.startswith("--print_config")


def _names(config: Namespace) -> Iterator[str]:
    """Yield the dotted name of every setting of a configuration."""
    for name, _, arguments in named_objects(config):
        if "[" not in name:
            yield from (f"{name}.{key}" if name else key for key in arguments)


def _warn_of_replaced_callbacks(argv: list[str], config: Namespace) -> None:
    """Warn if ``--trainer.callbacks`` without "+" has replaced callbacks of the configuration files."""
    if not any(word == CALLBACKS or word.startswith(f"{CALLBACKS}=") for word in argv):
        return
    kept = _class_names(config.trainer.callbacks)
    files = [read_yaml(Path(name)) for name in config_names(argv)]
    lost = [
        name
        for settings in files
        for name in _class_names((settings.get("trainer") or {}).get("callbacks"))
        if name not in kept
    ]
    if lost and kept:
        log.warning(
            "%s replaced the callbacks of the configuration (%s); to keep them, use %s+=%s",
            CALLBACKS,
            ", ".join(dict.fromkeys(lost)),
            CALLBACKS,
            kept[0],
        )


def _class_names(callbacks: Any) -> list[str]:
    """Return the bare class names of the callbacks in a configuration."""
    items = callbacks if isinstance(callbacks, list) else [callbacks]
    paths = [item if isinstance(item, str) else (item or {}).get("class_path", "") for item in items]
    return [path.rpartition(".")[2] for path in paths if path]
