"""Log-sum-exp of rows of scores, their largest score in each block, and their largest scores, in C."""

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.transforms import is_plain

# SCORE_BLOCK of csrc/scores.h
BLOCK = 64
# MOST_LARGEST of csrc/scores.h
MOST_LARGEST = 32
# Number of scores above which one more thread is worth its start-up time.
WORTH_A_THREAD = 65_536


def usable(scores: Tensor) -> bool:
    """Return whether the C code can process this tensor: float32 rows on the CPU, no tracer, no gradient."""
    return (
        type(scores) is Tensor
        and scores.dim() == 2
        and scores.is_cpu
        and scores.dtype is torch.float32
        and scores.stride(-1) == 1
        and not (torch.is_grad_enabled() and scores.requires_grad)
        and not torch.compiler.is_compiling()
        and is_plain()
        and c.unavailable() is None
    )


def scan(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the (R,) log-sum-exp of (R, V) scores and the (R, V // BLOCK) largest scores of whole blocks."""
    rows, size = scores.shape
    log_sums, maxima = scores.new_empty(rows), scores.new_empty(rows, size // BLOCK)
    threads = max(1, min(torch.get_num_threads(), scores.numel() // WORTH_A_THREAD))
    c.run(
        "fna_scores",
        c.ScoresArgs(scores.data_ptr(), rows, size, scores.stride(0), log_sums.data_ptr(), maxima.data_ptr(), threads),
    )
    return log_sums, maxima


def largest(scores: Tensor, maxima: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """Return the (R, ``count``) largest scores of each row, in descending order, and their tokens.

    Args:
        scores: (R, V).
        maxima: (R, V // BLOCK), the largest scores of whole blocks.
        count: at most V and at most ``MOST_LARGEST``.
    """
    rows, size = scores.shape
    values, tokens = scores.new_empty(rows, count), scores.new_empty(rows, count, dtype=torch.int64)
    threads = max(1, min(torch.get_num_threads(), scores.numel() // WORTH_A_THREAD))
    args = c.LargestArgs(scores.data_ptr(), maxima.data_ptr(), rows, size, scores.stride(0), count)
    args.values, args.places, args.threads = values.data_ptr(), tokens.data_ptr(), threads
    c.run("fna_largest", args)
    return values, tokens
