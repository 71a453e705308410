"""What the README tells people to type works."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from fna_lightning.cli import main
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
COMMANDS = [line.partition("#")[0].strip() for line in README.splitlines() if line.startswith("fna-lightning ")]
SMALL = ["--data.train_size=32", "--data.eval_size=20", "--trainer.max_epochs=1"]
SHORT = ["--data.longest=40"]


def test_the_python_example_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "'chunked': 'ok'" in done.stdout


@pytest.mark.parametrize("command", [line for line in COMMANDS if line.split()[1] == "fit"])
def test_fit_commands_train(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")
    small = SMALL[-1:] if "digits" in command else SMALL
    assert main([*shlex.split(command)[1:], *small, *(SHORT if "reviews" in command else [])]) == 0


@pytest.mark.parametrize("verb", sorted({line.split()[1] for line in COMMANDS} - {"fit"}))
def test_other_verbs_exist(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([verb, "--help"]) == 0
    assert re.search(rf"fna-lightning (\[options\] )?{verb}\b", capsys.readouterr().out)


@pytest.mark.parametrize("target", re.findall(r"^make (\w+)", README, flags=re.MULTILINE))
def test_make_targets_exist(target: str) -> None:
    subprocess.run(["make", "--dry-run", target], cwd=ROOT, check=True, capture_output=True)


def test_pictures_exist() -> None:
    pictures = re.findall(r"!\[.*?\]\((.*?)\)", README)
    assert pictures
    assert all((ROOT / picture).is_file() for picture in pictures)
