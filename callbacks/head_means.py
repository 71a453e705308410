"""Means of graph measures per attention head, over the sequences of all processes.

Each process adds up the values of its own sequences. The sums are added over processes, and divided last, so that the
result does not depend on how the sequences are distributed.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor

from fna_lightning.graph import measure
from fna_lightning.introspection.maps import AttentionMap

# TensorBoard shows groups of tags in alphabetical order and opens the first two, so these means come first.
HEADLINE = ("spectral_gap", "mean_hops")

# measure -> (layer, head) -> value
HeadValues = dict[str, dict[tuple[str, int], float]]


def empty_sums(heads: Mapping[str, Sequence[int]], measures: Sequence[str]) -> Tensor:
    """Return zeros of shape (heads of all layers, measures, 2); the last dimension is (sum, count)."""
    return torch.zeros(sum(map(len, heads.values())), len(measures), 2, dtype=torch.float64)


def head_sums(maps: Mapping[str, AttentionMap], heads: Mapping[str, Sequence[int]], measures: Sequence[str]) -> Tensor:
    """Return (sum, count) of every measure of every head over the sequences in ``maps``, shaped as ``empty_sums``.

    Args:
        maps: attention maps by layer name; a layer that is missing contributes zeros.
        heads: heads by layer name, in the same order on every process.
        measures: names of graph measures.
    """
    sums = empty_sums(heads, measures)
    start = 0
    for name, indices in heads.items():
        if name in maps:
            sums[start : start + len(indices)] = _layer_sums(maps[name], indices, measures)
        start += len(indices)
    return sums


def _layer_sums(layer_map: AttentionMap, heads: Sequence[int], measures: Sequence[str]) -> Tensor:
    values = measure(layer_map.weights[:, list(heads)], layer_map.lengths, measures)
    stacked = torch.stack([value.cpu() for value in values.values()], dim=-1)  # (B, H, measures)
    # the mean number of hops is not finite where no token reaches another
    finite = stacked.isfinite()
    return torch.stack([stacked.where(finite, 0.0).sum(0), finite.double().sum(0)], dim=-1)


def reduce_sums(sums: Tensor, trainer: L.Trainer, device: torch.device, *, failed: bool) -> tuple[Tensor, bool]:
    """Return the sums over all processes, and whether any of them failed.

    Every process must call this, also one that failed: the others would wait for it forever.
    """
    flat = torch.cat([sums.flatten(), torch.tensor([float(failed)], dtype=torch.float64)])
    reduced = trainer.strategy.reduce(flat.to(**_reducible(device)), reduce_op="sum")
    assert isinstance(reduced, Tensor)
    reduced = reduced.double().cpu()
    return reduced[:-1].reshape(sums.shape), bool(reduced[-1] > 0)


def head_means(
    sums: Tensor, heads: Mapping[str, Sequence[int]], measures: Sequence[str]
) -> tuple[HeadValues, dict[str, float]]:
    """Return the values of each measure by (layer, head), and the tags and values of the means over all heads.

    A measure that is defined for no sequence is left out.
    """
    names = [(layer, head) for layer, indices in heads.items() for head in indices]
    per_head: HeadValues = {}
    means: dict[str, float] = {}
    for index, name in enumerate(measures):
        total, count = sums[:, index].unbind(-1)
        rows = count.nonzero()[:, 0].tolist()
        if rows:
            per_head[name] = {names[row]: (total[row] / count[row]).item() for row in rows}
            means[mean_tag(name)] = (total.sum() / count.sum()).item()
    return per_head, means


def mean_tag(name: str) -> str:
    """Return the tag of a mean over heads: ``attention/`` for the main measures, ``attention_detail/`` for others."""
    return f"attention/{name}" if name in HEADLINE else f"attention_detail/{name}"


def head_tag(layer: str, head: int, name: str) -> str:
    """Return the tag of the curve of one head."""
    return f"heads/{layer}/{head}/{name}"


def _reducible(device: torch.device) -> dict[str, Any]:
    """Return device and dtype in which sums are reduced; MPS has no float64."""
    return {"device": device, "dtype": torch.float32} if device.type == "mps" else {"device": device}
