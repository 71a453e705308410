"""What every test shares: torchvision's cure first, one hypothesis profile, and where the real data sets are."""

import fna_lightning  # noqa: F401 - before anything imports torchvision

# isort: split

import os
import signal
import subprocess
import sys
from pathlib import Path

import lightning  # noqa: F401 - its log handler keeps the stderr of its import, which must not be one test's
import pytest
import torch
from hypothesis import settings

from helpers.fuzz_examples import EXAMPLES
from helpers.shipped_data import shipped_data

# torch's first call takes longer than hypothesis's deadline of 200 ms
settings.register_profile("fna", deadline=None, max_examples=25, derandomize=bool(os.environ.get("CI")))
# FNA_EXAMPLES=200 tries as many, new ones each time, in test_fuzz.py and in every test that names no number of its own
if EXAMPLES:
    settings.register_profile("many", deadline=None, max_examples=EXAMPLES)
settings.load_profile("many" if EXAMPLES else "fna")

# the problems are small: more threads would only wait for each other, and for whatever else the machine does
torch.set_num_threads(1)

# a program started in the background ignores Ctrl-C; the tests send it
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]


@pytest.fixture
def real_data() -> Path:
    """The folder of the real data sets: FNA_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("FNA_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set FNA_DATA to the folder that holds imdb, cifar10 and multi30k")
    return folder


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Small files in the form of the real data sets, and their cache."""
    return shipped_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def shipped_environment(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working folder in which every shipped configuration finds its data."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_DATA", str(small_data))
    monkeypatch.setenv("FNA_CACHE", str(small_data / "cache"))


@pytest.fixture(scope="session")
def wheel_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that sees the wheel of this checkout, and the packages of the running one beside it."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (wheel,) = folder.glob("*.whl")
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    # a plain path entry: the running environment's own editable hook stays out
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others))
    return folder / "venv/bin/python"
