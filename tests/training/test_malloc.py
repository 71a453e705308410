"""Freed memory stays with the process that trains."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, torch
from fna_lightning.training.malloc import keep_freed_memory
assert keep_freed_memory()
def step(): return [torch.ones(1 << 20) for _ in range(4)]
for _ in range(5): step()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20): step()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the C library of Linux")
def test_a_repeated_step_asks_the_system_for_nothing() -> None:
    kept = int(subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True).stdout)
    # 4 MiB in pages of 4 KiB, four tensors, twenty steps would be 80 thousand
    assert kept < 2000
