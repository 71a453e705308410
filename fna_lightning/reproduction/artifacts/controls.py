"""Controls: uniform attention, a Gaussian as wide as FNA, and other values of kappa."""

import math

from fna_lightning.experiments.grid import Cell
from fna_lightning.experiments.seeds import summarize
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.bandwidth import WIDTHS, matched_kappa
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import STYLES, legend, panels
from fna_lightning.reproduction.families import small_cells
from fna_lightning.reproduction.scales import Scale

MEASURES = ("spectral_gap", "entropy", "tv_to_uniform")
# label: measure of width
GAUSSIANS = {f"Gaussian with FNA's {measure}": measure for measure in WIDTHS}


def gaussian_kappa(measure: str) -> str:
    """Return the kappa of a Gaussian as wide as FNA, to four digits."""
    return f"{matched_kappa(8, measure):.4g}"


def settings(scale: Scale) -> dict[str, tuple[str, list[Cell]]]:
    """Return label -> (style, cells), for untied models with d = 8."""
    by_label = {
        "FNA, the paper's kappa": ("fna", small_cells(scale, "fna")),
        "uniform": ("uniform", small_cells(scale, "uniform")),
        "LA, the paper's kappa": ("la", small_cells(scale, "la")),
        "DP": ("dp", small_cells(scale, "dp")),
    }
    for label, measure in GAUSSIANS.items():
        by_label[label] = ("gaussian", small_cells(scale, "la", ("model.attention.kappa", gaussian_kappa(measure))))
    for kappa in ("vision", *scale.sweep.kappas):
        kappa_cells = small_cells(scale, "fna", ("model.attention.kappa", kappa), seeds=scale.few_seeds)
        by_label[f"FNA, kappa = {'d_H = 8' if kappa == 'vision' else kappa}"] = ("fna", kappa_cells)
    return by_label


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of all settings."""
    return [cell for _, setting_cells in settings(scale).values() for cell in setting_cells]


def run(context: Context) -> Result:
    """Compare accuracies, together with graph measures of each attention."""
    from fna_lightning.reproduction.graphs import graph_means, median_weight

    result, lines = Result(), []
    figure, (axes,) = panels(1, 5.6)
    by_label = settings(context.scale)
    for label, (style, setting_cells) in by_label.items():
        values = list(context.results(setting_cells).values())
        model = context.load_model(setting_cells[0])
        if not values or model is None:
            result.notes.append(f"not run: {context.missing_reason(setting_cells)}")
            continue
        summary = summarize(values)
        interval = "" if math.isnan(summary.half_width) else f" ± {summary.half_width:.2f}"
        texts = context.texts(model)
        means = graph_means(model, texts, MEASURES)
        median = median_weight(model, texts)
        numbers = [f"{means[name]:.3f}" for name in MEASURES]
        lines.append([label, str(summary.count), f"{summary.mean:.2f}{interval}", *numbers, f"{median:.3f}"])
        color, marker = STYLES[style]
        half_width = 0.0 if math.isnan(summary.half_width) else summary.half_width
        axes.errorbar([means["entropy"]], [summary.mean], [half_width], fmt=marker, color=color, capsize=3, label=label)
    columns = ["", "seeds", "accuracy (%)", "gap", "entropy", "TV to uniform", "median weight x n"]
    title = "accuracy, and graph measures of the first seed on training texts, Q != K"
    result.tables.append(Table(title, columns, lines))
    axes.set(xlabel="entropy of the rows / log n", ylabel="test accuracy (%)")
    legend(axes, 7)
    result.figures[context.save(figure, "controls")] = "Accuracy against the entropy of attention."
    fna = by_label["FNA, the paper's kappa"][1]
    for label in ("uniform", *GAUSSIANS, "LA, the paper's kappa", "DP"):
        result.claims.append(context.claim(f"FNA above {label}", fna, by_label[label][1]))
    kappas = ", ".join(f"{gaussian_kappa(measure)} by the {measure}" for measure in WIDTHS)
    result.notes.append(
        "The kappa of the Gaussians makes them as wide as FNA between 512 standard normal tokens, the distribution of "
        f"embeddings before training: {kappas}. The widths may diverge during training; the last column shows by how "
        "much (median weight x n is 1 for uniform attention)."
    )
    return result


ARTIFACT = Artifact(
    "controls",
    "Controls: does alpha < 2 help beyond near-uniform mixing?",
    "The paper has no uniform attention, no Gaussian of the same width and only one kappa.",
    run,
    cells,
)
