"""Controls: uniform attention, a Gaussian as wide as FNA, and other kappas - does alpha < 2 help beyond mixing?"""

import math

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import summarise
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.bandwidth import WIDTHS, matched_kappa
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import LOOKS, legend, panels
from fna_lightning.reproduction.families import small_cells
from fna_lightning.reproduction.scales import Scale

MEASURES = ("spectral_gap", "entropy", "tv_to_uniform")
GAUSSIANS = {f"Gaussian of FNA's {by}": by for by in WIDTHS}


def gaussian(by: str) -> str:
    """Return the kappa of a Gaussian as wide as FNA, to four digits."""
    return f"{matched_kappa(8, by):.4g}"


def settings(scale: Scale) -> dict[str, tuple[str, list[Cell]]]:
    """Return label -> (look, cells), untied, d = 8."""
    found = {
        "FNA, the paper's kappa": ("fna", small_cells(scale, "fna")),
        "uniform": ("uniform", small_cells(scale, "uniform")),
        "LA, the paper's kappa": ("la", small_cells(scale, "la")),
        "DP": ("dp", small_cells(scale, "dp")),
    }
    for label, by in GAUSSIANS.items():
        found[label] = ("gaussian", small_cells(scale, "la", ("model.attention.kappa", gaussian(by))))
    for one in ("vision", *scale.kappas):
        cells = small_cells(scale, "fna", ("model.attention.kappa", one), seeds=scale.few_seeds)
        found[f"FNA, kappa = {'d_H = 8' if one == 'vision' else one}"] = ("fna", cells)
    return found


def cells(scale: Scale) -> list[Cell]:
    """Return them all."""
    return [cell for _, found in settings(scale).values() for cell in found]


def run(bench: Bench) -> Finding:
    """Compare, with the graph of each attention beside its accuracy."""
    from fna_lightning.reproduction.graphs import graph_means, median_weight

    finding, lines = Finding(), []
    figure, (axes,) = panels(1, 5.6)
    everything = settings(bench.scale)
    for label, (name, found) in everything.items():
        values = list(bench.results(found).values())
        subject = bench.subject(found[0])
        if not values or subject is None:
            finding.notes.append(f"not run: {bench.failure(found)}")
            continue
        summary = summarise(values)
        width = "" if math.isnan(summary.half_width) else f" ± {summary.half_width:.2f}"
        texts = bench.texts(subject)
        means = graph_means(subject, texts, MEASURES)
        median = median_weight(subject, texts)
        shown = [f"{means[one]:.3f}" for one in MEASURES]
        lines.append([label, str(summary.count), f"{summary.mean:.2f}{width}", *shown, f"{median:.3f}"])
        colour, marker = LOOKS[name]
        axes.errorbar(
            [means["entropy"]],
            [summary.mean],
            [0.0 if width == "" else summary.half_width],
            fmt=marker,
            color=colour,
            capsize=3,
            label=label,
        )
    columns = ["", "seeds", "accuracy (%)", "gap", "entropy", "TV to uniform", "median weight x n"]
    finding.tables.append(Table("accuracy and graph (first seed, texts of train), Q != K", columns, lines))
    axes.set(xlabel="entropy of the rows / log n", ylabel="test accuracy (%)")
    legend(axes, 7)
    finding.figures[bench.save(figure, "controls")] = "Accuracy against how uniform attention is."
    fna = everything["FNA, the paper's kappa"][1]
    for other in ("uniform", *GAUSSIANS, "LA, the paper's kappa", "DP"):
        finding.claims.append(bench.claim(f"FNA above {other}", fna, everything[other][1]))
    kappas = ", ".join(f"{gaussian(by)} by the {by}" for by in WIDTHS)
    finding.notes.append(
        f"The kappa of the Gaussians makes them as wide as FNA between 512 standard normal tokens, as embeddings are "
        f"before training: {kappas}. Training may pull them apart; the table says how far (median weight x n is 1 if "
        "uniform)."
    )
    return finding


PIECE = Piece(
    "controls",
    "Controls: does alpha < 2 help beyond near-uniform mixing?",
    "The paper has no uniform attention, no Gaussian of the same width and one kappa.",
    run,
    cells,
)
