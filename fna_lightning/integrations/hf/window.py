"""Sliding windows without an (n, m) mask.

transformers creates the mask of a layer with a sliding window (Mistral, Qwen2, Gemma 3, ModernBERT) as a boolean matrix
with a row for each query. For long inputs ``fna_mask`` returns a ``WindowMask`` instead, which stores the width of the
window only, and ``windowed_attention`` computes blocks of queries with the keys in reach of each block.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.masking_utils import prepare_padding_mask, sdpa_mask
from transformers.utils.import_utils import is_tracing

from fna_lightning.attention import ExternalAttention

# Queries in a block, at least and at most. A narrow window gets small blocks, because a block reads up to
# window + block keys; each block is a call of the kernel, so it must not be too small either.
MIN_BLOCK, MAX_BLOCK = 128, 512


@dataclass(frozen=True)
class WindowMask:
    """The keys within a window around each query, in place of a boolean (B, 1, N, M) tensor.

    A model that computes with its mask gets the boolean tensor: this object then behaves as ``dense()``.

    Args:
        before: number of keys before the query's position that it may attend to.
        after: number of keys after the query's position that it may attend to; 0 if the attention is causal.
        offset: position of the first query among the keys.
        padding: (B, M) booleans, False for keys that are padding; None if there is no padding.
        shape: (B, 1, N, M), the shape of the boolean tensor.
        device: the device of the boolean tensor.
    """

    before: int
    after: int
    offset: int
    padding: Tensor | None
    shape: torch.Size
    device: torch.device

    def dense(self) -> Tensor:
        """Return the boolean (B, 1, N, M) tensor, True where attention is allowed."""
        n, m = self.shape[-2:]
        return self.part(0, n, 0, m).expand(self.shape)

    def part(self, start: int, stop: int, first: int, last: int) -> Tensor:
        """Return the mask of the queries ``start`` to ``stop`` and the keys ``first`` to ``last``."""
        query = torch.arange(start, stop, device=self.device)[:, None] + self.offset
        key = torch.arange(first, last, device=self.device)
        allowed = ((key >= query - self.before) & (key <= query + self.after))[None, None]
        return allowed if self.padding is None else allowed & self.padding[:, None, None, first:last]

    def keys(self, start: int, stop: int) -> tuple[int, int]:
        """Return the range of keys that any of the queries ``start`` to ``stop`` may attend to."""
        m = self.shape[-1]
        return max(0, start + self.offset - self.before), min(m, stop + self.offset + self.after)

    def __getitem__(self, index: Any) -> Tensor:
        return self.dense()[index]

    def __getattr__(self, name: str) -> Any:
        # Called only for names that this class does not have, such as methods of Tensor.
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.dense(), name)

    @classmethod
    def __torch_function__(
        cls, function: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        dense = [arg.dense() if isinstance(arg, cls) else arg for arg in args]
        options = {name: arg.dense() if isinstance(arg, cls) else arg for name, arg in (kwargs or {}).items()}
        return function(*dense, **options)


def fna_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    attention_mask: Tensor | None = None,
    local_size: int | None = None,
    config: Any = None,
    device: torch.device | str = "cpu",
    **options: Any,
) -> Tensor | WindowMask | None:
    """Return the mask of a layer, as transformers' AttentionMaskInterface requires.

    It is that of ``sdpa_mask``: boolean, or None if causality is the only restriction; except that a long input with a
    sliding window gets a ``WindowMask``.
    """
    causal = options.get("allow_is_causal_skip", True)
    # transformers forbids both skips if the mask has more to it than the window, such as packed sequences.
    only_window = causal or options.get("allow_is_bidirectional_skip", False)
    if (
        local_size is None
        or not only_window
        or not _is_sliding(config, local_size)
        or kv_length <= max(local_size, MAX_BLOCK)
        or q_length <= MIN_BLOCK
        or isinstance(q_offset, Tensor)
        or is_tracing(attention_mask)
    ):
        return sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset,  # type: ignore[arg-type] # transformers passes a tensor with a static cache
            kv_offset,
            attention_mask=attention_mask,
            local_size=local_size,
            config=config,
            device=device,
            **options,
        )
    padding = prepare_padding_mask(attention_mask, kv_length, kv_offset)
    if padding is not None:
        padding = padding[:, kv_offset : kv_offset + kv_length].bool()
        padding = None if bool(padding.all()) else padding
    # A causal window of w has w keys with the query's own; a bidirectional one has w keys on each side.
    before, after = (local_size - 1, 0) if causal else (local_size, local_size)
    shape = torch.Size((batch_size, 1, q_length, kv_length))
    return WindowMask(before, after, q_offset - kv_offset, padding, shape, torch.device(device))


def windowed_attention(
    core: ExternalAttention, q: Tensor, k: Tensor, v: Tensor, mask: WindowMask, dropout: float = 0.0
) -> Tensor:
    """Return the (B, H, N, D_v) outputs of a core, computed for one block of queries at a time."""
    block = min(max(mask.before + mask.after + 1, MIN_BLOCK), MAX_BLOCK)
    outputs = []
    for start in range(0, q.size(2), block):
        stop = min(start + block, q.size(2))
        first, last = mask.keys(start, stop)
        outputs.append(
            core(
                q[:, :, start:stop],
                k[:, :, first:last],
                v[:, :, first:last],
                mask.part(start, stop, first, last),
                dropout=dropout,
                enable_gqa=True,
            )
        )
    return torch.cat(outputs, dim=2)


def _is_sliding(config: Any, local_size: int) -> bool:
    """Whether the local size is that of a sliding window; Llama 4 has chunks, which use the same argument."""
    return local_size == getattr(config, "sliding_window", None) != getattr(config, "attention_chunk_size", None)
