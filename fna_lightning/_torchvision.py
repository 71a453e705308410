"""Lets torchvision import beside a PyTorch build that cannot load its compiled operators.

A CUDA build of torchvision next to a CPU build of torch fails to load its C++ library, and then
``import torchvision`` stops with "operator torchvision::nms does not exist" - and with it torchmetrics and
lightning, which import it on the way. Declaring the missing schemas is enough for transforms and data sets.
``torchvision.ops`` and ``torchvision.io.decode_image`` stay unusable on such a pair; where torchvision imports
by itself this module does nothing.
"""

import sys

import torch

_SCHEMAS = tuple(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor" for name in ("nms", "qnms"))

# torch.library forgets its definitions when the object is collected
_declared: "torch.library.Library | None" = None


def ensure_torchvision_imports() -> None:
    """Import torchvision, declaring the schemas of its compiled operators first if it needs that."""
    global _declared
    try:
        import torchvision
    except ImportError:
        return
    except RuntimeError as error:
        if "torchvision::nms" not in str(error):
            raise
        for name in [name for name in sys.modules if name.split(".")[0] == "torchvision"]:
            del sys.modules[name]
        _declared = torch.library.Library("torchvision", "FRAGMENT")
        for schema in _SCHEMAS:
            _declared.define(schema)
        import torchvision  # noqa: F401


ensure_torchvision_imports()
