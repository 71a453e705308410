"""Attention as a graph: tokens are nodes, weights are steps of a random walk, edge i -> j has length 1 / A_ij.

Pure functions on (..., n, n) row-stochastic matrices with optional ``lengths``; they know no model. They compute in
float64 on the CPU, without gradient, and return to the device of the weights.
"""

from fna_lightning.graph.ablation import ablate
from fna_lightning.graph.alignment import align
from fna_lightning.graph.diffusion import DiffusionMap, diffusion_distance, diffusion_map
from fna_lightning.graph.gap import spectral_gap, spectrum
from fna_lightning.graph.measures import MEASURES, measure
from fna_lightning.graph.paths import PathLengths, path_lengths, path_parents, shortest_path
from fna_lightning.graph.rollout import rollout
from fna_lightning.graph.uniformity import effective_rank, row_entropy, tv_to_uniform
from fna_lightning.graph.weyl import log_log_slope, weyl_spectrum

__all__ = [
    "MEASURES",
    "DiffusionMap",
    "PathLengths",
    "ablate",
    "align",
    "diffusion_distance",
    "diffusion_map",
    "effective_rank",
    "log_log_slope",
    "measure",
    "path_lengths",
    "path_parents",
    "rollout",
    "row_entropy",
    "shortest_path",
    "spectral_gap",
    "spectrum",
    "tv_to_uniform",
    "weyl_spectrum",
]
