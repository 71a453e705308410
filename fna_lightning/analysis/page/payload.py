"""The data of a page: the numbers of results.json, references to compressed matrices, and empty figures."""

import math
from typing import Any

from plotly.graph_objects import Figure

from fna_lightning.analysis import figure_styles, figures
from fna_lightning.analysis.page.explanations import measure_texts
from fna_lightning.analysis.page.matrices import MatrixStore, encode_hops, encode_parents
from fna_lightning.analysis.report import CrossHead, ExampleReport, HeadReport, ModelReport, Report, to_json

# significant digits of the numbers of a page, which shows at most four
DIGITS = 7
# words of an example in the list of examples
OPTION_WORDS = 8
LENGTH_MEASURES = ("mean_hops", "entropy", "effective_neighbors")


def page_data(report: Report) -> tuple[dict[str, Any], list[str]]:
    """Return the data of the page in the types of JSON, and its matrices."""
    data = rounded(to_json(report))
    store = MatrixStore(sum(_entries(model) for example in report.examples for model in example.models))
    for example, target in zip(report.examples, data["examples"], strict=True):
        _add_example(example, target, store)
    for info, color in zip(data["models"], figure_styles.COLORS * len(report.models), strict=False):
        info["color"] = color
    data |= {
        "measures": measure_texts(),
        "figures": {name: figure_json(figure) for name, figure in _figures(report).items()},
        "curve": figure_styles.curve("", figure_styles.COLORS[0], [], []).to_plotly_json(),
        "image": figure_styles.IMAGE,
        "themes": {name: _theme(name == "dark") for name in ("light", "dark")},
        "opacities": figure_styles.OPACITIES,
        "max_lines": figure_styles.MAX_LINES,
        "longest_label": figure_styles.LONGEST_LABEL,
        "dropped": _count_dropped(data["examples"]),
    }
    return data, store.texts


def figure_json(figure: Figure) -> dict[str, Any]:
    """Return a figure without its template, which the page chooses."""
    figure.update_layout(template=None)
    content = figure.to_plotly_json()
    content["layout"].pop("template", None)
    return content


def rounded(value: Any) -> Any:
    """Return JSON with its numbers rounded to ``DIGITS`` significant digits."""
    if isinstance(value, float):
        return value if value == 0 else round(value, DIGITS - 1 - math.floor(math.log10(abs(value))))
    if isinstance(value, dict):
        return {key: rounded(content) for key, content in value.items()}
    return [rounded(content) for content in value] if isinstance(value, list) else value


def _figures(report: Report) -> dict[str, Figure]:
    """Return the empty figures that the script fills, and the figures that do not depend on the selection."""
    result = figure_styles.empty_figures()
    result["mean"] = result["weights"]
    if report.ablation:
        result |= {f"ablation_{kind}": figures.ablation(report, kind) for kind in ("edges", "nodes")}
    for name in LENGTH_MEASURES:
        if any(value is not None for part in report.lengths for value in getattr(part, name)):
            result[f"lengths_{name}"] = figures.lengths(report, name)
    return result


def _theme(dark: bool) -> Any:
    return figure_styles.theme(dark=dark).to_plotly_json()


def _add_example(example: ExampleReport, target: dict[str, Any], store: MatrixStore) -> None:
    if example.pixels is not None:
        target["pixels"] = figures.image_url(example.pixels)
    for name in ("coordinates", "query_coordinates"):
        if (points := getattr(example, name)) is not None:
            target[name] = rounded(points.tolist())
    target["option"] = _option(example)
    if any(model.cross for model in example.models):
        target["cross_rows"], target["cross_columns"] = figures.cross_tokens(example)
        target["cross_titles"] = figures.cross_titles(example)
    for model, content in zip(example.models, target["models"], strict=True):
        heads = list(zip([*model.heads, *model.cross], [*content["heads"], *content["cross"]], strict=True))
        # the means of the layers come first, so that a long text shows at least these
        for head, part in sorted(heads, key=lambda pair: pair[0].head >= 0):
            _add_head(head, part, store)
        if model.rollout is not None and (references := store.add(store.weights(model.rollout.numpy()))):
            content["rollout"] = references[0]


def _option(example: ExampleReport) -> str:
    """Return the text of an example in the list of examples."""
    mark = {True: "✓ ", False: "✗ ", None: ""}[example.models[0].correct]
    words = " ".join(example.words[:OPTION_WORDS]) + (" …" if len(example.words) > OPTION_WORDS else "")
    readable = words if example.pixels is None and example.coordinates is None else example.label or ""
    return f"{mark}{example.title}{': ' if readable else ''}{readable}{'' if example.stored else ' (numbers only)'}"


def _add_head(head: HeadReport | CrossHead, part: dict[str, Any], store: MatrixStore) -> None:
    if head.weights is None:
        return
    weights = store.weights(head.weights.numpy())
    if isinstance(head, CrossHead):
        if references := store.add(weights):
            part["weights"] = references[0]
        return
    # tokens with equal attention have no coordinates but rounding errors
    if head.points is not None and head.points.abs().max() > 1e-9:
        part["points"], part["labeled"] = rounded(head.points.tolist()), figures.outliers(head.points)
    assert head.parents is not None
    assert head.hops is not None
    if references := store.add(weights, encode_parents(head.parents.numpy()), encode_hops(head.hops.numpy())):
        part["weights"], part["parents"], part["hops"] = references


def _entries(model: ModelReport) -> int:
    matrices = [*(head.weights for head in model.heads), *(head.weights for head in model.cross), model.rollout]
    return sum(matrix.numel() for matrix in matrices if matrix is not None)


def _count_dropped(examples: list[dict[str, Any]]) -> int:
    """Return how many heads of stored examples exceeded the budget."""
    models = [model for example in examples if example["stored"] for model in example["models"]]
    return sum("weights" not in head for model in models for head in [*model["heads"], *model["cross"]])
