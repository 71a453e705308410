"""Shared fixtures and settings: the torchvision import fix, the hypothesis profile, and the data sets."""

import fna_lightning  # noqa: F401 - before anything imports torchvision

# isort: split

import os
import signal
import subprocess
import sys
from pathlib import Path

import lightning  # noqa: F401 - its log handler keeps the stderr of the import, which must not be that of a test
import pytest
import torch
from hypothesis import settings

from helpers.fuzz_examples import EXAMPLES
from helpers.shipped_data import own_data, shipped_data

# torch's first call takes longer than hypothesis's deadline of 200 ms
settings.register_profile("fna", deadline=None, max_examples=25, derandomize=bool(os.environ.get("CI")))
# FNA_EXAMPLES=200 runs 200 new examples in test_fuzz.py and in every test that does not set max_examples
if EXAMPLES:
    settings.register_profile("many", deadline=None, max_examples=EXAMPLES)
settings.load_profile("many" if EXAMPLES else "fna")

# the problems are small, so more threads would only wait for each other
torch.set_num_threads(1)

# a background process ignores SIGINT, which some tests send
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

ROOT = Path(__file__).parents[1]


@pytest.fixture
def real_data() -> Path:
    """Folder of the real data sets: FNA_DATA, or ../shared/data next to the checkout."""
    folder = Path(os.environ.get("FNA_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set FNA_DATA to the folder that holds imdb, cifar10 and multi30k")
    return folder


@pytest.fixture(scope="session")
def small_data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of small files in the formats of the real data sets, and their cache."""
    return shipped_data(tmp_path_factory.mktemp("data"))


@pytest.fixture
def shipped_environment(small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory in which every shipped configuration finds its data."""
    monkeypatch.chdir(tmp_path)
    own_data(tmp_path)
    (tmp_path / "photos").symlink_to(small_data / "photos")
    monkeypatch.setenv("FNA_DATA", str(small_data))
    monkeypatch.setenv("FNA_CACHE", str(small_data / "cache"))


@pytest.fixture(scope="session")
def wheel_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Python of an environment with the wheel of this checkout and the packages of the running environment."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, "wheel", "--no-deps", "--wheel-dir", folder, ROOT], check=True)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
    (wheel,) = folder.glob("*.whl")
    site = next((folder / "venv").glob("lib/python*/site-packages"))
    subprocess.run([*pip, "install", "--no-deps", "--target", site, wheel], check=True)
    # a path entry does not process .pth files, so the editable install of the running environment stays out
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "others.pth").write_text("\n".join(others))
    return folder / "venv/bin/python"
