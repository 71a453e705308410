"""Finds operations that wait for a GPU, on machines without one.

``FAKE_DEVICE`` is PyTorch's meta device: its tensors have no values, so reading one, a boolean index or ``nonzero``
raises an error there, as does a copy to the CPU. ``CopyRecorder`` finds the other direction, and ``ReadRecorder`` finds
what reads the value of a tensor on the CPU, where a whole run with its callbacks can be trained.
"""

import traceback
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

FAKE_DEVICE = torch.device("meta")

aten = torch.ops.aten
# operators whose result, or the size of whose result, a program reads from the device
READS = {
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.equal.default,
    aten._unique2.default,
    aten.unique_dim.default,
    aten.repeat_interleave.Tensor,
}
INDEXING = {aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default}


class CopyRecorder(TorchDispatchMode):
    """Records operators that join tensors of two devices: copies from the CPU, which wait unless memory is pinned."""

    def __init__(self) -> None:
        super().__init__()
        self.copies: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        # A CPU scalar such as an optimizer's step is passed to a GPU kernel by value.
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor) and x.dim()]
        tensors += [x for x in tree_leaves(out) if isinstance(x, Tensor)]
        if len({x.device.type for x in tensors}) > 1:
            self.copies.append(f"{func} at {_caller()}")
        return out


class ReadRecorder(TorchDispatchMode):
    """Records operators that read the value of a tensor while ``on`` is True."""

    def __init__(self) -> None:
        super().__init__()
        self.on = True
        self.reads: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        boolean = func in INDEXING and any(
            isinstance(x, Tensor) and x.dtype in (torch.bool, torch.uint8) for x in tree_leaves(args[1])
        )
        if self.on and (func in READS or boolean):
            self.reads.append(f"{func} at {_caller()}")
        return func(*args, **(kwargs or {}))


def _caller() -> str:
    """Return the innermost lines of the program, without those of PyTorch and of this file."""
    frames = [frame for frame in traceback.extract_stack() if "/torch/" not in frame.filename]
    return " < ".join(f"{frame.filename}:{frame.lineno}" for frame in reversed(frames[-5:-2]))
