"""PathLength: logs the path lengths of every attention head."""

from fna_lightning.callbacks.attention_graph import AttentionGraph


class PathLength(AttentionGraph):
    """Logs mean hops, maximum hops and unreachable pairs of every head; arguments as for ``AttentionGraph``."""

    measures = ("mean_hops", "max_hops", "unreachable")
