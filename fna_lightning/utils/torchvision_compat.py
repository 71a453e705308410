"""Makes ``import torchvision`` work with a PyTorch build that cannot load its compiled operators.

A CUDA build of torchvision cannot load its C++ library with a CPU build of torch. Then ``import torchvision`` fails
with "operator torchvision::nms does not exist", and so do torchmetrics and lightning, which import it. Declaring the
missing schemas is enough for transforms and data sets; ``torchvision.ops`` and ``torchvision.io.decode_image`` stay
unusable. If the library loads, this module does nothing else. It does not import torchvision, which takes seconds.
"""

import importlib.util
import sys
from pathlib import Path

import torch

_SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))

# torch.library removes the definitions when this object is garbage-collected
_declared: "torch.library.Library | None" = None


def ensure_torchvision_imports() -> None:
    """Declare the schemas of torchvision's operators if it is installed and its C++ library cannot be loaded."""
    global _declared
    spec = None if "torchvision" in sys.modules else importlib.util.find_spec("torchvision")
    if spec is None or spec.origin is None or _declared or _operators_load(Path(spec.origin).parent):
        return
    _declared = torch.library.Library("torchvision", "FRAGMENT")
    for schema in _SCHEMAS:
        _declared.define(schema)


def _operators_load(folder: Path) -> bool:
    for library in (*folder.glob("_C*.so"), *folder.glob("_C*.pyd")):
        try:
            torch.ops.load_library(library)
        except OSError:
            continue
        return True
    return False


ensure_torchvision_imports()
