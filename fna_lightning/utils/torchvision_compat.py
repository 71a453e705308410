"""Makes ``import torchvision`` work with a PyTorch build that cannot load its compiled operators.

A CUDA build of torchvision cannot load its C++ library with a CPU build of torch. Then ``import torchvision`` fails
with "operator torchvision::nms does not exist", and so do torchmetrics and lightning, which import it. Declaring the
missing schemas is enough for transforms and data sets; ``torchvision.ops`` and ``torchvision.io.decode_image`` stay
unusable. If the library loads, this module does nothing else. Neither torch nor torchvision is imported before the
program itself imports torchvision, because each takes seconds.
"""

import importlib.util
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

_SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))

# torch.library removes the definitions when this object, a torch.library.Library, is garbage-collected
_declared: Any = None


class _TorchvisionObserver(MetaPathFinder):
    """Import hook that finds no module, but declares the operators when torchvision is first looked for."""

    done = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == "torchvision" and not self.done:
            self.done = True
            ensure_torchvision_imports()
        return None


def declare_operators_on_import() -> None:
    """Call ``ensure_torchvision_imports`` when the program first imports torchvision."""
    if not any(isinstance(finder, _TorchvisionObserver) for finder in sys.meta_path):
        sys.meta_path.insert(0, _TorchvisionObserver())


def ensure_torchvision_imports() -> None:
    """Declare the schemas of torchvision's operators if it is installed and its C++ library cannot be loaded."""
    global _declared
    spec = None if "torchvision" in sys.modules else importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _declared or _operators_load(Path(spec.origin).parent):
        return
    import torch

    _declared = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        _declared.define(schema)


def _operators_load(folder: Path) -> bool:
    import torch

    for library in (*folder.glob("_C*.so"), *folder.glob("_C*.pyd")):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
        return True
    return False
