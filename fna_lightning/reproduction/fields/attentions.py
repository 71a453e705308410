"""The attentions that are compared, each with two start values of its learned scale."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from fna_lightning.attention import Attention, DotProduct, Fractional, StudentT, Uniform
from fna_lightning.plotting.style import BLUE, GRAY, GREEN, ORANGE, PURPLE, SKY

HEAD_DIM = 8


@dataclass(frozen=True)
class FieldAttention:
    """An attention of the comparison.

    Attributes:
        name: name in files.
        label: name in tables and figures.
        setting: name of the setting whose start value is chosen on validation episodes.
        starts: its two start values; one value if there is nothing to choose.
        build: returns the attention for a start value and the number of coordinates of the data.
        style: color and marker in figures.
    """

    name: str
    label: str
    setting: str
    starts: tuple[float, ...]
    build: Callable[[float, int], Attention]
    style: tuple[str, str]


ATTENTIONS = {
    attention.name: attention
    for attention in (
        FieldAttention(
            "fna",
            "FNA",
            "kappa",
            (1.0, 0.1),
            lambda start, dim: Fractional(1.2, start, dim, learn=["kappa"]),
            (BLUE, "o"),
        ),
        FieldAttention(
            "fna-paper",
            "FNA, d_M = d_H",
            "kappa",
            (math.sqrt(8.0), 0.5),
            lambda start, _: Fractional(1.2, start, learn=["kappa"]),
            (SKY, "P"),
        ),
        FieldAttention(
            "gaussian",
            "Gaussian",
            "kappa",
            (math.sqrt(8.0), 0.5),
            lambda start, _: Fractional(2.0, start, learn=["kappa"]),
            (GREEN, "s"),
        ),
        FieldAttention(
            "student",
            "Cauchy",
            "kappa",
            (1.0, 0.1),
            lambda start, dim: StudentT(1.0, start, dim, learn=["kappa"]),
            (PURPLE, "v"),
        ),
        FieldAttention(
            "dot",
            "dot-product",
            "scale * sqrt(8)",
            (1.0, 4.0),
            lambda start, _: DotProduct(start / math.sqrt(HEAD_DIM), learn=["scale"]),
            ("#F0B27A", "<"),
        ),
        FieldAttention(
            "qk-norm",
            "qk-norm",
            "scale",
            (5.0, 20.0),
            lambda start, _: DotProduct(start, qk_norm=True, learn=["scale"]),
            (ORANGE, "^"),
        ),
        FieldAttention(
            "ssmax",
            "qk-norm + SSMax",
            "scale",
            (1.2, 4.8),
            lambda start, _: DotProduct(start, qk_norm=True, ssmax=True, learn=["scale"]),
            ("#8B2500", ">"),
        ),
        FieldAttention("uniform", "uniform", "", (0.0,), lambda _start, _dim: Uniform(), (GRAY, "D")),
    )
}
