"""Attention as a graph: tokens are nodes, and the edge i -> j has length 1 / A_ij.

Pure functions of (..., n, n) row-stochastic matrices with optional ``lengths``; they do not depend on any model. They
compute in float64 on the CPU, without gradient, and return results on the device of the weights.
"""

from fna_lightning.graph.ablation import ablate
from fna_lightning.graph.asymmetry import direction
from fna_lightning.graph.diffusion import DiffusionMap, align, diffusion_distance, diffusion_map
from fna_lightning.graph.gap import spectral_gap, spectrum
from fna_lightning.graph.laplacian import algebraic_connectivity, laplacian_spectrum
from fna_lightning.graph.log_log import fit_slope, log_log_slope
from fna_lightning.graph.measures import MEASURES, measure
from fna_lightning.graph.paths import PathLengths, path_lengths, path_parents, shortest_path
from fna_lightning.graph.rollout import rollout
from fna_lightning.graph.uniformity import effective_neighbors, effective_rank, row_entropy, tv_to_uniform
from fna_lightning.graph.weyl import weyl_spectrum

__all__ = [
    "MEASURES",
    "DiffusionMap",
    "PathLengths",
    "ablate",
    "algebraic_connectivity",
    "align",
    "diffusion_distance",
    "diffusion_map",
    "direction",
    "effective_neighbors",
    "effective_rank",
    "fit_slope",
    "laplacian_spectrum",
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
