"""Speed of a start, as facts that do not depend on the machine: which packages a command imports."""

import pickle
import subprocess
import sys

import lightning as L
import pytest

import fna_lightning
from fna_lightning.cli import COMMANDS
from fna_lightning.config.class_index import exported_classes
from fna_lightning.config.registry import register_builtins
from fna_lightning.task import Task

HEAVY = ("torch", "lightning", "torchmetrics", "torchvision", "jsonargparse", "matplotlib", "scipy", "sklearn")
HEAVY = (*HEAVY, "tensorboard", "transformers", "datasets", "pandas")


def imported(code: str) -> set[str]:
    """Return the heavy packages that a new process has imported after ``code``."""
    code += f"\nimport sys\nprint('\\nimported:', *[name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    return {*done.stdout.splitlines()[-1].removeprefix("imported:").split()}


def test_importing_the_package_imports_nothing_heavy() -> None:
    assert imported("import fna_lightning") == set()


def test_the_help_of_the_commands_imports_nothing_heavy() -> None:
    # the benchmarks have arguments that depend on the kernels
    helps = [["--help"], ["--version"], ["fit", "--help"], *([name, "--help"] for name in COMMANDS if name != "bench")]
    code = f"from fna_lightning.cli import main\nfor words in {helps}: assert main(words) == 0"
    assert imported(code) == set()


def test_list_does_not_import_lightning() -> None:
    names = imported("from fna_lightning.cli import main\nassert main(['list']) == 0")
    assert "torch" in names
    assert not names & {"lightning", "torchmetrics", "torchvision", "transformers", "matplotlib", "datasets"}


@pytest.mark.parametrize(
    ("package", "base", "root"),
    [
        ("tasks", "Task", Task),
        ("tasks", "LightningDataModule", L.LightningDataModule),
        ("callbacks", None, L.Callback),
    ],
)
def test_classes_read_from_the_sources_are_those_that_an_import_gives(package, base, root) -> None:
    register_builtins()
    module = sys.modules[f"fna_lightning.{package}"]
    classes = {name: getattr(module, name) for name in module.__all__ if issubclass(getattr(module, name), root)}
    expected = {name: cls.__doc__.partition("\n")[0] for name, cls in sorted(classes.items())}
    assert exported_classes(f"fna_lightning.{package}", base) == expected
    assert expected


def test_public_names_are_imported_when_they_are_used() -> None:
    namespace: dict[str, object] = {}
    exec("from fna_lightning import *", namespace)
    assert {*fna_lightning.__all__} <= {*namespace}
    assert {*fna_lightning.__all__} <= {*dir(fna_lightning)}
    assert fna_lightning.fractional_attention is fna_lightning.attention.fractional_attention
    function = fna_lightning.fractional_attention
    assert pickle.loads(pickle.dumps(function)) is function
    with pytest.raises(AttributeError, match="module 'fna_lightning' has no attribute 'fractional'"):
        _ = fna_lightning.fractional
