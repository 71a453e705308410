"""When to look: hooks that watch training. Importing this registers them for the command line."""

from fna_lightning.callbacks.attention_graph import AttentionEntropy, AttentionGraph, PathLength, SpectralGap
from fna_lightning.callbacks.average_epochs import AverageEpochs
from fna_lightning.callbacks.best_checkpoint import BestCheckpoint
from fna_lightning.callbacks.check_sharding import CheckSharding
from fna_lightning.callbacks.finite_loss import FiniteLoss
from fna_lightning.callbacks.hparams import HParams
from fna_lightning.callbacks.last_checkpoint import LastCheckpoint
from fna_lightning.callbacks.prediction_writer import PredictionWriter
from fna_lightning.callbacks.projector import Projector
from fna_lightning.callbacks.run_summary import RunSummary

__all__ = [
    "AttentionEntropy",
    "AttentionGraph",
    "AverageEpochs",
    "BestCheckpoint",
    "CheckSharding",
    "FiniteLoss",
    "HParams",
    "LastCheckpoint",
    "PathLength",
    "PredictionWriter",
    "Projector",
    "RunSummary",
    "SpectralGap",
]
