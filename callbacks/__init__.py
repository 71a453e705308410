"""Callbacks: attention-graph measures, checkpoints, run summary. Importing them registers them for configurations."""

from fna_lightning.callbacks.attention_graph import AttentionGraph
from fna_lightning.callbacks.average_epochs import AverageEpochs
from fna_lightning.callbacks.best_checkpoint import BestCheckpoint
from fna_lightning.callbacks.check_sharding import CheckSharding
from fna_lightning.callbacks.effective_neighbors import EffectiveNeighbors
from fna_lightning.callbacks.entropy import AttentionEntropy
from fna_lightning.callbacks.error_curve import ErrorCurve
from fna_lightning.callbacks.field_map import FieldMap
from fna_lightning.callbacks.finite_loss import FiniteLoss
from fna_lightning.callbacks.hparams import HParams
from fna_lightning.callbacks.last_checkpoint import LastCheckpoint
from fna_lightning.callbacks.parameter_summary import ParameterSummary
from fna_lightning.callbacks.path_length import PathLength
from fna_lightning.callbacks.prediction_writer import PredictionWriter
from fna_lightning.callbacks.progress_bar import RunProgressBar
from fna_lightning.callbacks.projector import Projector
from fna_lightning.callbacks.run_estimate import RunEstimate
from fna_lightning.callbacks.run_summary import RunSummary
from fna_lightning.callbacks.spectral_gap import SpectralGap
from fna_lightning.callbacks.step_metrics import StepMetrics

__all__ = [
    "AttentionEntropy",
    "AttentionGraph",
    "AverageEpochs",
    "BestCheckpoint",
    "CheckSharding",
    "EffectiveNeighbors",
    "ErrorCurve",
    "FieldMap",
    "FiniteLoss",
    "HParams",
    "LastCheckpoint",
    "ParameterSummary",
    "PathLength",
    "PredictionWriter",
    "Projector",
    "RunEstimate",
    "RunProgressBar",
    "RunSummary",
    "SpectralGap",
    "StepMetrics",
]
