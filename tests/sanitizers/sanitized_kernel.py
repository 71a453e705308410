"""A plugin of pytest that loads the C kernel named by FNA_SANITIZED_KERNEL instead of the installed one."""

import os
from pathlib import Path

from fna_lightning.attention.kernels.cpu import library as cpu_library

cpu_library.PATH = Path(os.environ["FNA_SANITIZED_KERNEL"])
cpu_library.load.cache_clear()
if cpu_library.missing() is not None:
    raise RuntimeError(cpu_library.missing())

if __name__ == "__main__":
    print(cpu_library.instruction_set())
