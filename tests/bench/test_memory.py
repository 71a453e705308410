"""Only the reference kernel stores an (n, m) matrix: peak memory growth of a training step."""

import pytest

from fna_lightning import available_kernels
from fna_lightning.bench.memory import STATUS, peak_growth

pytestmark = pytest.mark.e2e

# MB beyond inputs, output and gradients at 1 x 8 x 4096 x 32; one float32 matrix of weights would take 512
LIMITS = {"FNA alpha=2, sdpa": 64, "FNA, chunked": 100, "FNA, cpu": 48, "FNA alpha=2, cpu": 48}


@pytest.mark.skipif(not STATUS.is_file(), reason="needs /proc to read the peak memory of a process")
@pytest.mark.parametrize("competitor", LIMITS)
def test_memory_of_a_training_step(competitor: str) -> None:
    if available_kernels()[competitor.rpartition(", ")[2]] != "ok":
        pytest.skip(f"{competitor} is not available")
    assert peak_growth(competitor, (1, 8, 4096, 32), 2) < LIMITS[competitor]
