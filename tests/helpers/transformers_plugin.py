"""pytest plugin that runs transformers' own tests with another attention, see ``surveys/transformers_suite.py``.

Wherever a test uses the default attention or asks for eager attention, it gets the attention ``--fna-attention``.
"""

import ast
import importlib
import json
import random
import sys
import unittest
from pathlib import Path
from typing import Any

import pytest
import torch

from fna_lightning.integrations import hf  # noqa: F401 # registers the attention


class MissingName:
    """Stands for a name that the tests import and the installed transformers does not have; using it skips the test."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        raise unittest.SkipTest(f"the installed transformers has no {self.name}")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--fna-attention", default="fna", help="name of the attention: fna or eager")
    parser.addoption("--fna-report", help="file to which the outcome of every test is appended, one JSON object a line")


def pytest_configure(config: pytest.Config) -> None:
    replace_attention(config.getoption("--fna-attention"))
    for file in sorted(Path(config.rootpath, "tests").glob("*.py")):
        stub_missing_names(file.read_text(encoding="utf-8"))


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Seed every random generator, so that a test has the same numbers with both attentions."""
    torch.manual_seed(0)
    random.seed(0)
    for name, module in list(sys.modules.items()):
        # The testers draw token ids from a generator of their own.
        generator = vars(module).get("global_rng") if name.startswith("tests.") else None
        if isinstance(generator, random.Random):
            generator.seed(0)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    result = yield
    write_report(item.config, result.get_result())


def write_report(config: pytest.Config, report: Any) -> None:
    """Append the outcome of a phase of a test to the report; a passed phase counts only if it is the test itself."""
    file = config.getoption("--fna-report")
    if file is None or (report.passed and report.when != "call"):
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    message = str(crash.message if crash else report.longrepr or "")
    entry = {"test": report.nodeid, "outcome": report.outcome, "message": message[:1000]}
    with open(file, "a", encoding="utf-8") as stream:
        stream.write(json.dumps(entry) + "\n")


def replace_attention(name: str) -> None:
    """Make models use the attention ``name`` instead of the default one and of eager attention."""
    from transformers import PreTrainedConfig, PreTrainedModel

    original = PreTrainedModel._check_and_adjust_attn_implementation

    def check(self: Any, attn_implementation: str | None, *args: Any, **kwargs: Any) -> str:
        requested = name if attn_implementation in (None, "eager") else attn_implementation
        return original(self, requested, *args, **kwargs)

    PreTrainedModel._check_and_adjust_attn_implementation = check
    # transformers allows config.output_attentions with the name "eager" only; here the weights of FNA are tested.
    PreTrainedConfig.validate_output_attentions = lambda self: None
    PreTrainedConfig.output_attentions = property(
        lambda self: self._output_attentions, lambda self, value: setattr(self, "_output_attentions", value)
    )


def stub_missing_names(source: str) -> list[str]:
    """Add stubs for the names that a test module imports from submodules of transformers and that do not exist.

    The tests may belong to another version than the installed one. Returns the names of the stubs.
    """
    stubs = []
    for node in ast.walk(ast.parse(source)):
        if not (isinstance(node, ast.ImportFrom) and (node.module or "").startswith("transformers.")):
            continue
        try:
            module = importlib.import_module(str(node.module))
        except ImportError:
            continue
        for alias in node.names:
            if alias.name != "*" and not hasattr(module, alias.name):
                setattr(module, alias.name, MissingName(alias.name))
                stubs.append(alias.name)
    return stubs
