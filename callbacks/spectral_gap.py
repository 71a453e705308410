"""SpectralGap: logs the spectral gap of every attention head."""

from fna_lightning.callbacks.attention_graph import AttentionGraph


class SpectralGap(AttentionGraph):
    """Logs the spectral gap 1 - |lambda_2| of every layer and head; arguments as for ``AttentionGraph``."""

    measures = ("spectral_gap",)
