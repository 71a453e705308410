"""Runs the quick tests of the Triton kernel in Triton's interpreter, and checks what happens without Triton.

Triton decides at its first import whether it interprets, so the tests of the kernel need a process of their own.
"""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from fna_lightning.attention.kernels.triton.blocks import block_sizes, padded_width

ROOT = Path(__file__).parents[2]


@pytest.mark.skipif(find_spec("triton") is None, reason="Triton is not installed")
def test_triton_kernel_in_the_interpreter() -> None:
    command = [
        "-m",
        "pytest",
        "-q",
        "-x",
        "-m",
        "not interpreter",
        "-p",
        "no:cacheprovider",
        "-W",
        "ignore::RuntimeWarning",
    ]
    result = subprocess.run(
        [sys.executable, *command, "tests/attention/test_triton_kernel.py"],
        cwd=ROOT,
        env={**os.environ, "TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=550,
        check=False,
    )
    assert result.returncode == 0, result.stdout[-4000:]
    assert " passed" in result.stdout
    assert "skipped" not in result.stdout


def test_without_triton_the_reason_is_given() -> None:
    code = (
        "import sys\n"
        "class Block:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] == 'triton': raise ImportError('blocked')\n"
        "sys.meta_path.insert(0, Block())\n"
        "import torch\n"
        "from fna_lightning import available_kernels, fractional_attention\n"
        "print(available_kernels()['triton'])\n"
        "x = torch.randn(1, 1, 4, 8)\n"
        "print(fractional_attention(x, x, x).shape)\n"
        "try: fractional_attention(x, x, x, kernel='triton')\n"
        "except RuntimeError as error: print(error)\n"
    )
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-2000:]
    reason, shape, message = result.stdout.splitlines()
    assert reason == "Triton is not installed (it comes with PyTorch for CUDA and ROCm)"
    assert shape == "torch.Size([1, 1, 4, 8])"
    assert message.startswith(f"kernel 'triton' cannot run here: {reason}; use kernel='auto' or one of cpu")


def test_importing_the_library_does_not_import_triton_kernels() -> None:
    code = (
        "import sys, fna_lightning; fna_lightning.available_kernels()\n"
        "print([name for name in sys.modules if name.startswith('fna_lightning.attention.kernels.triton.')])\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "['fna_lightning.attention.kernels.triton.blocks']"


@pytest.mark.parametrize(("width", "padded"), [(1, 16), (16, 16), (17, 32), (33, 64), (64, 64), (128, 128)])
def test_padded_width(width, padded) -> None:
    assert padded_width(width) == padded


@pytest.mark.parametrize("architecture", ["sm80", "sm90", "gfx942", "interpret"])
def test_blocks_exist_for_every_width(architecture) -> None:
    for name in ("forward", "queries", "keys", "bias"):
        for half in (False, True):
            for width in (16, 32, 64, 128):
                blocks = block_sizes(name, architecture, half, width)
                # tensor cores multiply blocks of 16
                assert blocks.queries % 16 == blocks.keys % 16 == 0
                assert blocks.num_warps in (4, 8)
