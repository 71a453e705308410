"""The help of the training commands: the short one is true, and the long one lists every setting."""

import ast
import inspect
import re

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.training import fit_help, subcommands
from fna_lightning.training.fit_help import SHORT_FLAGS, short_help
from fna_lightning.training.subcommands import SUBCOMMANDS

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("verb", SUBCOMMANDS)
def test_the_short_help_opens_with_examples_and_names_existing_settings(
    verb: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([verb, "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.strip() == short_help(verb)
    assert re.search(r"\n\n.*\n\nexamples?:\n  fna-lightning", printed)
    assert max(map(len, printed.splitlines())) <= 130
    options = re.findall(r"^  (--[\w.-]+)", printed, flags=re.MULTILINE)
    assert 15 <= len(options) <= 35
    assert main([verb, "--help-all"]) == 0
    everything = capsys.readouterr().out
    not_in_parser = {f"--{flag}" for flag in SHORT_FLAGS} | {
        "--model.SETTING",
        "--data.SETTING",
        "--help-all",
        "--debug",
    }
    for option in set(options) - not_in_parser:
        # the settings of a class have an option only when the class is given
        name = re.sub(r"^--(model|data)\..*", r"--\1", option)
        assert name in everything, option


def test_the_short_help_imports_no_library() -> None:
    for module in (fit_help, subcommands):
        tree = ast.parse(inspect.getsource(module))
        imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
        assert {getattr(node, "module", "") for node in imports} <= {
            "fna_lightning.errors",
            "fna_lightning.training.subcommands",
        }


def test_the_long_names_in_the_help_are_those_of_the_shipped_tasks(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "--config", "reviews_fna.yaml", "--print_config"]) == 0
    config = yaml.safe_load(capsys.readouterr().out)
    for name, _ in SHORT_FLAGS.values():
        value = config
        for key in name.split("."):
            value = value.get("init_args", value)[key]
        assert value is not None
