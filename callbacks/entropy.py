"""AttentionEntropy: logs how close the weights of every attention head are to uniform."""

from fna_lightning.callbacks.attention_graph import AttentionGraph


class AttentionEntropy(AttentionGraph):
    """Logs entropy, distance to uniform and effective rank of every layer and head; arguments as ``AttentionGraph``."""

    measures = ("entropy", "tv_to_uniform", "effective_rank")
