"""Running a compiled model without its compiled code, so that hooks of its layers are called."""

import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def eager() -> AbstractContextManager[Any]:
    """Return a context in which modules compiled by ``torch.compile`` run as if they were not.

    Compiled code does not call hooks that were registered after it was compiled.
    """
    # Nothing is compiled as long as the compiler, which takes seconds to import, is not loaded.
    return torch.compiler.set_stance("force_eager") if "torch._dynamo" in sys.modules else nullcontext()
