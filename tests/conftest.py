"""What every test shares: torchvision's cure first, one hypothesis profile, and where the real data sets are."""

import fna_lightning  # noqa: F401 - before anything imports torchvision

# isort: split

import os
from pathlib import Path

import lightning  # noqa: F401 - its log handler keeps the stderr of its import, which must not be one test's
import pytest
from hypothesis import settings

# torch's first call takes longer than hypothesis's deadline of 200 ms
settings.register_profile("fna", deadline=None, max_examples=25, derandomize=bool(os.environ.get("CI")))
settings.load_profile("fna")

ROOT = Path(__file__).parents[1]


@pytest.fixture
def real_data() -> Path:
    """The folder of the real data sets: FNA_DATA, or ../shared/data beside the checkout."""
    folder = Path(os.environ.get("FNA_DATA", ROOT.parent / "shared" / "data"))
    if not folder.is_dir():
        pytest.skip(f"no real data at {folder}; set FNA_DATA to the folder that holds imdb, cifar10 and multi30k")
    return folder
