"""keep_freed_memory: a repeated training step causes no page faults."""

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


@pytest.mark.skipif(sys.platform != "linux", reason="needs glibc")
def test_a_repeated_step_causes_no_page_faults() -> None:
    faults = int(subprocess.run([sys.executable, "-c", FAULTS], capture_output=True, check=True).stdout)
    # without it: 4 tensors x 20 steps x 4 MiB in pages of 4 KiB = 80 thousand
    assert faults < 2000
