"""Attention weights of the queries of a field model."""

from torch import Tensor

from fna_lightning.introspection.maps import attention_layers, attention_maps
from fna_lightning.tasks.fields.episodes import FieldBatch
from fna_lightning.tasks.fields.task import FieldRegression


def query_weights(task: FieldRegression, batch: FieldBatch) -> dict[tuple[str, int], Tensor]:
    """Return the (B, N, M) weights of N queries on M context points, for each layer and head."""
    maps = attention_maps(task, lambda: task.probe(batch), list(attention_layers(task)))
    queries = batch.query_x.size(1)
    # In a deeper network the context attends to itself, too; its tokens come first.
    return {
        (layer, head): layer_map.weights[:, head, -queries:]
        for layer, layer_map in maps.items()
        for head in range(layer_map.weights.size(1))
    }
