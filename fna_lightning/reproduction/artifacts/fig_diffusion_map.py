"""The diffusion map of one review."""

import math

from fna_lightning.attention import Fractional, MultiheadAttention
from fna_lightning.graph import diffusion_map, row_entropy
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.plotting.graphs import draw_points
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.artifacts.walks import first_cells, tied_cells
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import panels
from fna_lightning.reproduction.families import ATTENTIONS

EPS = 0.1


def run(bench: Bench) -> Finding:
    """Draw two coordinates of every token, with kappa narrowed as the paper does for this figure."""
    from fna_lightning.analysis.models import StudiedModel
    from fna_lightning.reproduction.graphs import longest

    def narrow(subject: StudiedModel) -> None:
        for layer in attention_layers(subject.task).values():
            if isinstance(layer, MultiheadAttention) and isinstance(layer.attention, Fractional):
                one, width = layer.attention, layer.value.in_features // layer.num_heads
                rule = float(one.scale(layer.value.weight.new_empty(1, width)))
                layer.attention = Fractional(one.alpha, rule * math.sqrt(EPS))

    finding, lines = Finding(), []
    figure, axes = panels(3, 4.4)
    for place, name in enumerate(("fna", "la", "dp")):
        cell = tied_cells(bench.scale)[name][0]
        subject = bench.subject(cell)
        if subject is None:
            finding.notes.append(bench.failure([cell]))
            continue
        narrow(subject)
        example = longest(bench.texts(subject))
        (found,) = subject.maps(example.input).values()
        walk = found.weights[0, 0].double()
        chart = diffusion_map(walk, symmetrise=True)
        draw_points(axes[place], chart.coordinates)
        axes[place].set_title(ATTENTIONS[name])
        values = chart.eigenvalues[1:6].tolist()
        lines.append([ATTENTIONS[name], *(f"{one:.3f}" for one in values), f"{row_entropy(walk).item():.3f}"])
    columns = ["", *(f"lambda_{one}" for one in range(1, 6)), "entropy"]
    finding.tables.append(Table("eigenvalues of the walk", columns, lines))
    finding.figures[bench.save(figure, "diffusion_map")] = "Tokens of the longest text studied; colour: place in it."
    finding.notes.append("kappa is that of training times sqrt(0.1), the paper's for diffusion maps; DP has no kappa.")
    return finding


PIECE = Piece(
    "fig-diffusion-map",
    "Diffusion map of a review",
    "By alpha = 1.2 the tokens form one connected cloud, by alpha = 2 they fall apart.",
    run,
    first_cells,
)
