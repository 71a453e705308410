"""Plug-ins: the example is listed and trains with its own configuration; a broken one is skipped."""

import json
import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from fna_lightning.config.plugins import GROUP, _load, origin
from fna_lightning.task import Task

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def plugin_python(wheel_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the example plug-in, a broken one, and the package as installed from its wheel."""
    folder = tmp_path_factory.mktemp("plugin")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
    subprocess.run([*pip, "--target", site, ROOT / "examples" / "plugin"], check=True)
    package = next(wheel_python.parents[1].glob("lib/python*/site-packages"))
    (site / "others.pth").write_text(f"{package}\n{(package / 'others.pth').read_text()}")
    broken = site / "broken_plugin-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken-plugin\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text(f"[{GROUP}]\nbroken = broken_plugin\n")
    (site / "broken_plugin.py").write_text("raise ImportError('libsomething.so: no such file')\n")
    return folder / "venv/bin/python"


def command(python: Path, folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "FNA_RUN_DIR": ""}
    environment.pop("PYTHONPATH", None)
    line = [python, "-m", "fna_lightning.cli", *words]
    return subprocess.run(line, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_list_shows_the_package_of_each_class(plugin_python: Path, tmp_path: Path) -> None:
    done = command(plugin_python, tmp_path, "list", "--json", "all.json")
    assert done.returncode == 0, done.stderr
    lists = json.loads((tmp_path / "all.json").read_text())
    for section, name in (
        ("attentions", "Cauchy"),
        ("tasks", "FindRepeat"),
        ("data", "RepeatData"),
        ("callbacks", "Curve"),
    ):
        assert lists[section][name]
        assert lists["from"][section][name] == "fna-example"
    assert lists["from"]["attentions"]["Fractional"] == "fna-lightning"
    assert lists["from"]["configs"]["example_cauchy.yaml"] == "fna_example"
    assert lists["from"]["plugins"] == {"broken": "broken-plugin 1.0", "example": "fna-example 0.1"}
    assert lists["plugins"]["broken"] == "ImportError: libsomething.so: no such file"
    assert "the plug-in 'broken' (broken-plugin 1.0) cannot be imported and is skipped: ImportError" in done.stderr


def test_the_example_trains_with_its_own_config(plugin_python: Path, tmp_path: Path) -> None:
    quiet = "--trainer.enable_progress_bar=false"
    done = command(plugin_python, tmp_path, "fit", "--config", "example_cauchy.yaml", quiet)
    assert done.returncode == 0, done.stderr
    results = json.loads((tmp_path / "runs/example_cauchy/version_0/results.json").read_text())
    assert results["run"]["attention"] == ["Cauchy(kappa=1)"]
    # always answering with the more frequent class gives 0.53
    assert results["fit"]["best_value"] > 0.8
    assert "attention/spectral_gap" in results["fit"]["metrics"]
    # one bar per validation, eight in total
    assert re.search(r"accuracy [▁▂▃▄▅▆▇█]{8} \d\.\d{3}", done.stdout)


def test_a_missing_module_is_reported_as_a_problem() -> None:
    plugin = _load(EntryPoint("gone", "no_such_module_anywhere", GROUP))
    assert plugin.problem == "ModuleNotFoundError: No module named 'no_such_module_anywhere'"
    assert origin(Task) == "fna-lightning"
