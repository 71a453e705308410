"""The Gaussian attention of an unchanged timm layer, computed from the calls that the layer itself makes.

With kappa^2 = 2 sqrt(d) the Gaussian -|q - k|^2 / kappa^2 is q.k / sqrt(d) - |k|^2 / (2 sqrt(d)) plus a constant of the
query, so it is the layer's own logit with a term of the key, whatever biases the layer adds.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

MATMULS = {torch.matmul, Tensor.matmul, Tensor.__matmul__}
SOFTMAXES = {torch.softmax, Tensor.softmax, F.softmax}


def matched_kappa(width: int) -> float:
    """Return the kappa at which the Gaussian has the scale of dot-product attention."""
    return (2.0 * width**0.5) ** 0.5


class GaussianFormula(TorchFunctionMode):
    """Adds the term of the key to the logits of one forward pass of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func is F.scaled_dot_product_attention:
            return self.attend(*args, **kwargs)
        if func in MATMULS and self.keys is None:
            # The first product of a layer is that of queries and transposed keys.
            self.keys = args[1].mT
        if func in SOFTMAXES:
            assert self.keys is not None
            return func(args[0] + self.key_term(self.keys), *args[1:], **kwargs)
        return func(*args, **kwargs)

    def key_term(self, k: Tensor) -> Tensor:
        return -k.square().sum(dim=-1).unsqueeze(-2) / (2.0 * k.size(-1) ** 0.5)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attn_mask: Tensor | None = None, **options: Any) -> Tensor:
        assert not options.get("dropout_p")
        assert not options.get("is_causal")
        distance = (q.unsqueeze(-2) - k.unsqueeze(-3)).square().sum(dim=-1)
        logits = -distance / matched_kappa(q.size(-1)) ** 2
        if attn_mask is not None:
            logits = logits + attn_mask
        return logits.softmax(dim=-1) @ v


def gaussian_output(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the output of an unchanged layer with Gaussian attention."""
    with GaussianFormula():
        return layer(*args, **kwargs)
