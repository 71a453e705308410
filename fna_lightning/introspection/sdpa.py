"""Attention weights of calls of ``torch.nn.functional.scaled_dot_product_attention``, named by the calling module.

PyTorch's own layers and most models of timm and transformers compute their attention with this function, which never
returns the weights. ``SdpaRecorder`` intercepts the calls and recomputes the weights from their arguments.
"""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from fna_lightning.attention.inputs import heads_per_key_head, repeat_heads
from fna_lightning.introspection.layers import AttentionLayer, has_other_sequence

_MULTIHEAD = inspect.signature(F.multi_head_attention_forward)

# called with the name of the module, the (B, H, N, M) weights, and whether this is self-attention
Record = Callable[[str, Tensor, bool], None]


class SdpaRecorder(TorchFunctionMode):
    """Calls ``record`` with the weights of each attention call that is not made by a layer of this package.

    Args:
        record: receives the name of the innermost running module, the weights, and whether this is self-attention.
    """

    def __init__(self, record: Record) -> None:
        super().__init__()
        self.record = record
        # name, module, and whether it was called with another sequence, of the modules that are running
        self.running: list[tuple[str, nn.Module, bool]] = []

    def __torch_function__(
        self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if any(isinstance(module, AttentionLayer) for _, module, _ in self.running):
            return func(*args, **kwargs)
        if func is F.multi_head_attention_forward:
            return self._multihead(args, kwargs)
        if func is F.scaled_dot_product_attention:
            weights = sdpa_weights(*args, **kwargs)
            cross = bool(self.running) and self.running[-1][2]
            self._record(weights, not cross and weights.size(-2) == weights.size(-1))
        return func(*args, **kwargs)

    def _multihead(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Tensor, Tensor | None]:
        """Run PyTorch's multi-head attention so that it returns its weights; calls inside it are not intercepted."""
        bound = _MULTIHEAD.bind(*args, **kwargs)
        bound.apply_defaults()
        inputs = bound.arguments
        needed, averaged = inputs["need_weights"], inputs["average_attn_weights"]
        inputs["need_weights"], inputs["average_attn_weights"] = True, False
        output, weights = F.multi_head_attention_forward(*bound.args, **bound.kwargs)
        assert weights is not None
        recorded = _four_dimensional(weights).nan_to_num(0.0)
        self._record(recorded, inputs["query"] is inputs["key"])
        if not needed:
            return output, None
        return output, weights.mean(dim=-3) if averaged else weights

    def _record(self, weights: Tensor, is_self: bool) -> None:
        self.record(self.running[-1][0] if self.running else "", weights, is_self)


@contextmanager
def recording_sdpa(model: nn.Module, record: Record) -> Iterator[None]:
    """Call ``record`` with the weights of the attention calls of ``model`` inside the context, see ``SdpaRecorder``."""
    recorder = SdpaRecorder(record)
    fast_path = torch.backends.mha.get_fastpath_enabled()
    with ExitStack() as stack:
        # the fast path of nn.TransformerEncoder runs a whole layer in one operator
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        for name, module in model.named_modules():
            for handle in _track(recorder, name, module):
                stack.callback(handle.remove)
        stack.enter_context(recorder)
        yield


def sdpa_weights(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Return the (B, H, N, M) weights of ``scaled_dot_product_attention`` with these arguments, without dropout.

    A query that may attend to no key has weights 0.
    """
    q, k = _four_dimensional(query), _four_dimensional(key)
    if enable_gqa:
        k = repeat_heads(k, heads_per_key_head(q, k))
    scale = 1.0 / math.sqrt(q.size(-1)) if scale is None else scale
    # half precision would round the weights of a row so that they do not sum to 1
    q, k = (tensor.to(torch.promote_types(tensor.dtype, torch.float32)) for tensor in (q, k))
    logits = q @ k.mT * scale
    if is_causal:
        logits = logits.masked_fill(torch.ones_like(logits, dtype=torch.bool).triu(1), -math.inf)
    if attn_mask is not None:
        mask = _four_dimensional(attn_mask.expand(*query.shape[:-1], key.size(-2)))
        logits = logits.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else logits + mask
    return logits.softmax(dim=-1).nan_to_num(0.0)


def _track(recorder: SdpaRecorder, name: str, module: nn.Module) -> list[Any]:
    """Register hooks that keep the recorder's list of running modules, and return their handles."""

    def enter(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        recorder.running.append((name, module, has_other_sequence(module, args, kwargs)))

    def leave(*_: Any) -> None:
        recorder.running.pop()

    return [
        # first of all hooks: one that raises before it would leave nothing to remove
        module.register_forward_pre_hook(enter, prepend=True, with_kwargs=True),
        module.register_forward_hook(leave, always_call=True),
    ]


def _four_dimensional(tensor: Tensor) -> Tensor:
    """Return (B, H, N, D): missing dimensions are added, and further leading ones flattened."""
    while tensor.ndim < 4:
        tensor = tensor.unsqueeze(-3)
    return tensor.flatten(0, -4)
