"""What is installed: every package, every config, no common names at the top, and it runs from a wheel alone."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[1]


def setuptools_table() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


def test_every_package_is_listed() -> None:
    setup = setuptools_table()
    packages = {
        ".".join([name, *init.parent.relative_to(ROOT / folder).parts])
        for name, folder in setup["package-dir"].items()
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert packages == set(setup["packages"])


def test_constraints_pin_every_dependency() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    requirements = [
        *project["dependencies"],
        *(requirement for extra in project["optional-dependencies"].values() for requirement in extra),
    ]
    names = {re.split(r"[\[><=!~ ;]", requirement)[0].lower() for requirement in requirements} - {"fna-lightning"}
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert names <= pins.keys()
    assert tuple(map(int, pins["lightning"].split("."))) >= (2, 6, 6)


def test_the_lock_holds_the_pins_with_their_hashes_and_nothing_of_a_machine() -> None:
    text = (ROOT / "requirements.lock").read_text()
    entry = r"([\w.-]+)==(\S+)(?: ; [^\n\\]+)? \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)"
    locked = {name.lower(): version for name, version, _ in re.findall(entry, text)}
    # no addresses, no options, no paths: comments and pins with hashes are all there is
    assert not re.sub(rf"^(?:{entry}|#.*\n)", "", text, flags=re.MULTILINE)
    lines = (ROOT / "constraints.txt").read_text().lower().replace("_", "-").splitlines()
    pins = dict(line.split("==") for line in lines if "==" in line)
    assert {name: locked.get(name) for name in pins} == pins, "run `make lock`"
    # beside them stands only what a system other than this one, or a GPU, makes torch and others ask for
    beside = {name for name in locked.keys() - pins.keys() if not re.match(r"(nvidia|cuda)-|triton$|setuptools$", name)}
    assert all(re.search(rf"^{name}==\S+ ; ", text, flags=re.MULTILINE) for name in beside), beside


def run(python: Path, code: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONSAFEPATH": "1", "FNA_RUN_DIR": ""}
    environment.pop("PYTHONPATH", None)
    return subprocess.run([python, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True, check=False)


def test_the_wheel_trains_from_an_empty_folder(wheel_python: Path, tmp_path: Path) -> None:
    arguments = ["fit", "--config", "reviews_fna.yaml", "--trainer.max_epochs=1", "--trainer.enable_progress_bar=false"]
    arguments += ["--data.train_size=64", "--data.eval_size=32", "--data.longest=60"]
    code = "import fna_lightning, sys; print(fna_lightning.__file__); from fna_lightning.cli import main;"
    code += f"sys.exit(main({arguments}))"
    done = run(wheel_python, code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert str(wheel_python.parents[1]) in done.stdout.splitlines()[0]
    assert json.loads((tmp_path / "runs/reviews_fna/version_0/results.json").read_text())["fit"]["epochs"] == 1


@pytest.mark.parametrize("name", ["tasks", "callbacks", "configs"])
def test_no_common_names_leak(wheel_python: Path, tmp_path: Path, name: str) -> None:
    assert run(wheel_python, f"import fna_lightning.{name}", tmp_path).returncode == 0
    for python in (wheel_python, Path(sys.executable)):
        done = run(python, f"import {name}", tmp_path)
        assert done.returncode == 1
        assert f"No module named '{name}'" in done.stderr


def test_the_wheel_holds_configs_and_types(wheel_python: Path) -> None:
    package = next(wheel_python.parents[1].glob("lib/python*/site-packages/fna_lightning"))
    assert {path.name for path in (package / "configs").glob("*.yaml")} == {
        path.name for path in (ROOT / "configs").glob("*.yaml")
    }
    assert {"page.html", "page.css", "page.js"} <= {path.name for path in (package / "analysis" / "page").iterdir()}
    assert {"paper.yaml", "deviations.yaml", "page.css"} <= {path.name for path in (package / "reproduction").iterdir()}
    assert (package / "py.typed").is_file()
