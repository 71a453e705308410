"""Diffusion map of one review."""

import math

from fna_lightning.attention import Fractional, MultiheadAttention
from fna_lightning.graph import diffusion_map, row_entropy
from fna_lightning.introspection.maps import attention_layers
from fna_lightning.plotting.graphs import draw_points
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import panels
from fna_lightning.reproduction.families import ATTENTIONS, first_tied_cells, tied_cells

EPS = 0.1


def run(context: Context) -> Result:
    """Draw two coordinates of every token, with kappa reduced as in the paper's figure."""
    from fna_lightning.analysis.models import StudiedModel
    from fna_lightning.reproduction.graphs import longest

    def reduce_kappa(model: StudiedModel) -> None:
        for layer in attention_layers(model.task).values():
            if isinstance(layer, MultiheadAttention) and isinstance(layer.attention, Fractional):
                attention, width = layer.attention, layer.value.in_features // layer.num_heads
                kappa = float(attention.scale(layer.value.weight.new_empty(1, width)))
                layer.attention = Fractional(attention.alpha, kappa * math.sqrt(EPS))

    result, lines = Result(), []
    figure, axes = panels(3, 4.4)
    for position, name in enumerate(("fna", "la", "dp")):
        cell = tied_cells(context.scale)[name][0]
        model = context.load_model(cell)
        if model is None:
            result.notes.append(context.missing_reason([cell]))
            continue
        reduce_kappa(model)
        example = longest(context.texts(model))
        (layer_map,) = model.maps(example.input).values()
        weights = layer_map.weights[0, 0].double()
        embedding = diffusion_map(weights, symmetrise=True)
        draw_points(axes[position], embedding.coordinates)
        axes[position].set_title(ATTENTIONS[name])
        eigenvalues = [f"{value:.3f}" for value in embedding.eigenvalues[1:6].tolist()]
        lines.append([ATTENTIONS[name], *eigenvalues, f"{row_entropy(weights).item():.3f}"])
    columns = ["", *(f"lambda_{number}" for number in range(1, 6)), "entropy"]
    result.tables.append(Table("eigenvalues of the attention matrix", columns, lines))
    result.figures[context.save(figure, "diffusion_map")] = (
        "Tokens of the longest text; the color is the position in the text."
    )
    result.notes.append(
        "kappa is the value used in training times sqrt(0.1), the paper's choice for diffusion maps; DP has no kappa."
    )
    return result


ARTIFACT = Artifact(
    "fig-diffusion-map",
    "Diffusion map of a review",
    "With alpha = 1.2 the tokens form one connected cloud; with alpha = 2 they fall apart.",
    run,
    first_tied_cells,
)
