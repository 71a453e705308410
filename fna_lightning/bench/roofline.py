"""The shortest time in which a GPU can compute an attention, from its peak numbers.

    time >= max(operations / peak operations, bytes / peak bandwidth, special functions / peak special functions)

A pair of query and key takes 4 d operations forward and 14 d forward and backward (d is the width of a head), and, for
FNA, 3 special functions (square root, logarithm, exponential) forward and 8 forward and backward. The bytes are q, k, v
and the output forward; forward and backward they are read once more and their gradients are written. Causal attention
has half the pairs. An SM evaluates 16 special functions per clock.
"""

from dataclasses import dataclass

import torch

SPECIAL_PER_CLOCK = 16


@dataclass(frozen=True)
class Peak:
    """Peak numbers of a GPU without sparsity, from its data sheet.

    Attributes:
        bf16: operations per second of bfloat16 and float16 tensor cores with float32 sums.
        tf32: operations per second of TF32 tensor cores.
        fp32: operations per second of float32 outside of tensor cores.
        bandwidth: bytes per second of its memory.
        sms: number of streaming multiprocessors.
        clock: boost clock in Hz.
    """

    bf16: float
    tf32: float
    fp32: float
    bandwidth: float
    sms: int
    clock: float

    @property
    def special(self) -> float:
        """Special functions per second."""
        return SPECIAL_PER_CLOCK * self.sms * self.clock


# words that the name of the GPU contains -> peak numbers; the first match counts
PEAKS: dict[tuple[str, ...], Peak] = {
    ("H100", "PCIe"): Peak(756e12, 378e12, 51.2e12, 2.0e12, 114, 1.755e9),
    ("H100", "HBM3"): Peak(989e12, 494e12, 66.9e12, 3.35e12, 132, 1.98e9),
    ("H200",): Peak(989e12, 494e12, 66.9e12, 4.8e12, 132, 1.98e9),
    ("A100", "80GB"): Peak(312e12, 156e12, 19.5e12, 1.935e12, 108, 1.41e9),
    ("A100", "40GB"): Peak(312e12, 156e12, 19.5e12, 1.555e12, 108, 1.41e9),
    ("RTX 4090",): Peak(165e12, 82.6e12, 82.6e12, 1.008e12, 128, 2.52e9),
    ("RTX 3090",): Peak(71e12, 35.6e12, 35.6e12, 0.936e12, 82, 1.695e9),
}


def find_peak(name: str) -> Peak | None:
    """Return the peak numbers of the GPU with this name; None if they are not known."""
    return next((peak for words, peak in PEAKS.items() if all(word in name for word in words)), None)


def shortest_ms(
    peak: Peak,
    sizes: tuple[int, int, int, int],
    dtype: torch.dtype,
    *,
    precision: str,
    causal: bool,
    backward: bool,
    special: bool,
) -> float:
    """Return the milliseconds that the formula above gives.

    Args:
        peak: numbers of the GPU.
        sizes: batch, heads, length and width of self-attention.
        dtype: type of the inputs.
        precision: matmul precision of float32: "highest" counts three TF32 products for one, or the plain float32 units
            if they are faster; "high" counts one TF32 product.
        causal: whether queries attend to earlier tokens only.
        backward: whether the backward pass is included.
        special: whether the attention has the special functions of FNA, rather than one exponential.
    """
    batch, heads, length, width = sizes
    pairs = batch * heads * length * length * (0.5 if causal else 1.0)
    rate = peak.bf16 if dtype != torch.float32 else peak.tf32 if precision == "high" else max(peak.fp32, peak.tf32 / 3)
    functions = (8 if backward else 3) if special else (2 if backward else 1)
    tensors = 4 + 8 if backward else 4
    bytes_moved = tensors * batch * heads * length * width * dtype.itemsize
    seconds = max(
        pairs * width * (14 if backward else 4) / rate, bytes_moved / peak.bandwidth, pairs * functions / peak.special
    )
    return 1e3 * seconds
