"""FNA in the models of timm.

    from fna_lightning.integrations.timm import enable
    model = timm.create_model("swin_tiny_patch4_window7_224")
    enable(model, alpha=1.2, kappa="vision")

Each attention layer keeps its projections, norms, position biases, rotary embeddings and dropout. Only the softmax of
dot products is replaced. A layer that FNA cannot replace is an error that names it, see ``refusals``.
"""

try:
    import timm  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        "fna_lightning.integrations.timm needs timm, which is not installed; pip install 'fna-lightning[timm]'"
    ) from error

from fna_lightning.integrations.timm.enable import calibrated_kappa, disable, enable
from fna_lightning.integrations.timm.layers import Inspection, inspect_model

__all__ = ["Inspection", "calibrated_kappa", "disable", "enable", "inspect_model"]
