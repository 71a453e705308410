"""Pytest plugin that loads the C kernel at FNA_SANITIZED_KERNEL instead of the installed one."""

import os
from pathlib import Path

from fna_lightning.attention.kernels.cpu import library as cpu_library

cpu_library.PATH = Path(os.environ["FNA_SANITIZED_KERNEL"])
cpu_library.load.cache_clear()
if (reason := cpu_library.unavailable()) is not None:
    raise RuntimeError(reason)

if __name__ == "__main__":
    print(cpu_library.instruction_set())
