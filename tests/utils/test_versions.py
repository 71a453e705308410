"""package_versions returns the versions of the imported packages."""

import platform

import lightning as L
import numpy as np
import torch

import fna_lightning
from fna_lightning.utils.versions import package_versions


def test_versions_are_those_of_the_imported_packages() -> None:
    assert package_versions("numpy") == {
        "fna_lightning": fna_lightning.__version__,
        "lightning": L.__version__,
        "torch": str(torch.__version__),
        "numpy": np.__version__,
        "python": platform.python_version(),
    }
