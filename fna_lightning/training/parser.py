"""Argument parsers of the training commands: errors on one line, and checks of the config.yaml of a run."""

import argparse
import logging
from pathlib import Path
from typing import Any, NoReturn

from jsonargparse import DefaultHelpFormatter, Namespace
from lightning.pytorch.cli import LightningArgumentParser

from fna_lightning.config.construction import ConstructorFailures
from fna_lightning.config.parser_report import parser_message
from fna_lightning.config.run_config import TRUST, as_text, checked_config, is_run_config
from fna_lightning.errors import UsageError

log = logging.getLogger(__name__)


class ParserError(UsageError):
    """A wrong command line or configuration.

    Args:
        report: message of jsonargparse.
    """

    def __init__(self, report: str) -> None:
        super().__init__(parser_message(report))
        self.report = report


class OneLineParser(LightningArgumentParser):
    """Reports an error on one line instead of printing the usage of a hundred options.

    Options cannot be abbreviated. ``failures`` records which constructor fails when the parser builds objects.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **{**kwargs, "allow_abbrev": False})
        self.failures = ConstructorFailures()

    def add_instantiator(self, instantiator: Any, class_type: Any, *args: Any, **kwargs: Any) -> None:
        """Add an instantiator, whose failures are recorded."""
        super().add_instantiator(self.failures.recorded(instantiator), class_type, *args, **kwargs)

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        if not self.exit_on_error:
            # this is a nested parser; its report becomes part of the report of the outer one
            super().error(message, ex)
        raise ParserError(message) from ex

    def parse_path(self, path: Any, *args: Any, **kwargs: Any) -> Namespace:
        """Parse a configuration file; the config.yaml of a run may only name allowed classes."""
        if not is_run_config(path):
            return super().parse_path(path, *args, **kwargs)
        # parse the content that was checked, since the file could be replaced before it is read again
        return self.parse_string(as_text(checked_config(Path(path))), str(path), *args, **kwargs)


class HelpFormatter(argparse.RawDescriptionHelpFormatter, DefaultHelpFormatter):
    """Help formatter of jsonargparse that keeps the line breaks of examples."""


class TrustingParser(OneLineParser):
    """Parses the config.yaml of a run like any other configuration, with a warning."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.reported: set[str] = set()

    def parse_path(self, path: Any, *args: Any, **kwargs: Any) -> Namespace:
        # a command line with short flags is parsed twice
        if is_run_config(path) and str(path) not in self.reported:
            self.reported.add(str(path))
            log.warning("%s: %s may run any code it names", TRUST, path)
        return LightningArgumentParser.parse_path(self, path, *args, **kwargs)
