"""When to look: hooks that watch training. Importing this registers them for the command line."""

from fna_lightning.callbacks.attention_graph import AttentionEntropy, AttentionGraph, PathLength, SpectralGap
from fna_lightning.callbacks.hparams import HParams
from fna_lightning.callbacks.predictions import PredictionsFile
from fna_lightning.callbacks.projector import Projector
from fna_lightning.callbacks.run_summary import RunSummary

__all__ = [
    "AttentionEntropy",
    "AttentionGraph",
    "HParams",
    "PathLength",
    "PredictionsFile",
    "Projector",
    "RunSummary",
    "SpectralGap",
]
