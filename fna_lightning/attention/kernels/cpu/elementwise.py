"""What the element-wise functions of the C library have in common."""

import torch
from torch import Tensor

from fna_lightning.attention.kernels.cpu import library as c
from fna_lightning.attention.transforms import is_legacy_batched, is_plain

# Number of elements above which one more thread is worth its start-up time.
WORTH_A_THREAD = 65_536


def threads_for(x: Tensor) -> int:
    """Return the number of threads for a tensor; never more than PyTorch may use."""
    return max(1, min(torch.get_num_threads(), x.numel() // WORTH_A_THREAD))


def usable(x: Tensor) -> bool:
    """Return whether the C code can process this tensor: a float32 CPU tensor, no tracer, no transform."""
    return (
        type(x) is Tensor
        and x.device.type == "cpu"
        and x.dtype == torch.float32
        and not torch.compiler.is_compiling()
        and is_plain()
        and not is_legacy_batched(x)
        and c.unavailable() is None
    )
