"""Attention maps of a fixed set of validation sequences, the probe."""

from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities import move_data_to_device

from fna_lightning.introspection.maps import AttentionMap, attention_maps
from fna_lightning.introspection.probe import probe_batch
from fna_lightning.task import Task


class ProbeMaps:
    """Samples the probe batch once and computes its self-attention maps on demand.

    Args:
        sequences: number of validation sequences, over all processes.
        max_length: tokens after which a sequence is truncated.
    """

    def __init__(self, sequences: int, max_length: int) -> None:
        self.sequences = sequences
        self.max_length = max_length
        # this process's part of the probe; None before it is sampled, or if the process has no part
        self.batch: Any = None
        self._sampled = False

    def reset(self) -> None:
        """Forget the probe batch; the next call of ``compute`` samples it again."""
        self.batch, self._sampled = None, False

    def compute(self, trainer: L.Trainer, task: Task, layers: Sequence[str]) -> dict[str, AttentionMap]:
        """Return the maps of ``layers`` by name, without cross-attention and without empty sequences."""
        if not self._sampled:
            self.batch = probe_batch(
                trainer.val_dataloaders, self.sequences, rank=trainer.global_rank, world_size=trainer.world_size
            )
            self._sampled = True
        if self.batch is None:
            return {}
        batch = move_data_to_device(self.batch, task.device)
        # The graph measures are computed on the CPU, and a GPU then holds the weights of one layer at a time.
        maps = attention_maps(task, lambda: task.probe(batch, self.max_length), layers, device=torch.device("cpu"))
        self_maps = {name: _without_empty(layer_map) for name, layer_map in maps.items() if layer_map.is_self}
        return {name: layer_map for name, layer_map in self_maps.items() if layer_map is not None}


def _without_empty(layer_map: AttentionMap) -> AttentionMap | None:
    """Return the map of the sequences that have tokens; None if there is none."""
    if layer_map.lengths is None or bool((layer_map.lengths > 0).all()):
        return layer_map if len(layer_map.weights) else None
    keep = layer_map.lengths > 0
    return AttentionMap(layer_map.weights[keep], layer_map.lengths[keep], layer_map.is_self) if keep.any() else None
