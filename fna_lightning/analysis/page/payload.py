"""The data of a page: the numbers of results.json, references to compressed matrices, and empty figures."""

import json
from typing import Any

from numpy.typing import NDArray
from plotly.graph_objects import Figure

from fna_lightning.analysis import figure_styles, figures
from fna_lightning.analysis.page.explanations import measure_texts
from fna_lightning.analysis.page.matrices import BUDGET, MatrixStore, compress, encode_hops, encode_parents
from fna_lightning.analysis.report import CrossHead, ExampleReport, HeadReport, ModelReport, Report, to_json

# significant digits of the numbers of a page, and of its curves and points, which show at most four
DIGITS, CURVE_DIGITS = 7, 5
# words of an example in the list of examples
OPTION_WORDS = 8
LENGTH_MEASURES = ("mean_hops", "entropy", "effective_neighbors")


def page_data(report: Report) -> tuple[dict[str, Any], list[str]]:
    """Return the data of the page in the types of JSON, and its matrices."""
    data = rounded(to_json(report))
    for example, target in zip(report.examples, data["examples"], strict=True):
        _add_example(example, target)
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
    }
    # the matrices get what the numbers leave
    store = MatrixStore(_count_weights(report), BUDGET - len(compress(dump(data))))
    data["dropped"] = _add_matrices(report, data["examples"], store)
    data["rounding"] = store.rounding
    return data, store.texts


def dump(data: dict[str, Any]) -> bytes:
    """Return data as compact JSON."""
    return json.dumps(data, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def figure_json(figure: Figure) -> dict[str, Any]:
    """Return a figure without its template, which the page chooses."""
    figure.update_layout(template=None)
    content = figure.to_plotly_json()
    content["layout"].pop("template", None)
    return content


def rounded(value: Any, digits: int = DIGITS) -> Any:
    """Return JSON with its numbers rounded to this many significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{digits}g}")
    if isinstance(value, dict):
        return {key: rounded(content, digits) for key, content in value.items()}
    return [rounded(content, digits) for content in value] if isinstance(value, list) else value


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


def _add_example(example: ExampleReport, target: dict[str, Any]) -> None:
    """Add what the script needs beside the numbers and the matrices."""
    target["option"] = _option(example)
    if example.pixels is not None:
        target["pixels"] = figures.image_url(example.pixels)
    for name in ("coordinates", "query_coordinates"):
        if (points := getattr(example, name)) is not None:
            target[name] = rounded(points.tolist(), CURVE_DIGITS)
    if any(model.cross for model in example.models):
        target["cross_rows"], target["cross_columns"] = figures.cross_tokens(example)
        target["cross_titles"] = figures.cross_titles(example)
    for model, content in zip(example.models, target["models"], strict=True):
        for head, part in zip(model.heads, content["heads"], strict=True):
            part |= {name: rounded(part[name], CURVE_DIGITS) for name in ("spectrum", "laplacian")}
            # tokens with equal attention have no coordinates but rounding errors
            if head.points is not None and head.points.abs().max() > 1e-9:
                part["points"] = rounded(head.points.tolist(), CURVE_DIGITS)
                part["labeled"] = figures.outliers(head.points)


def _add_matrices(report: Report, examples: list[dict[str, Any]], store: MatrixStore) -> int:
    """Add references to the matrices, and return how many heads exceeded the budget."""
    pairs = [
        (model, content)
        for example, target in zip(report.examples, examples, strict=True)
        for model, content in zip(example.models, target["models"], strict=True)
    ]
    heads = [
        (head, part)
        for model, content in pairs
        for head, part in zip(_heads(model), [*content["heads"], *content["cross"]], strict=True)
        if head.weights is not None
    ]
    # rollout and the means of the layers come first, so that every example shows at least these
    for model, content in pairs:
        if model.rollout is not None and (references := store.add(store.weights(model.rollout.numpy()))):
            content["rollout"] = references[0]
    for head, part in sorted(heads, key=lambda pair: pair[0].head >= 0):
        _add_head(head, part, store)
    return sum("weights" not in part for _, part in heads)


def _option(example: ExampleReport) -> str:
    """Return the text of an example in the list of examples."""
    mark = {True: "✓ ", False: "✗ ", None: ""}[example.models[0].correct]
    words = " ".join(example.words[:OPTION_WORDS]) + (" …" if len(example.words) > OPTION_WORDS else "")
    readable = words if example.pixels is None and example.coordinates is None else example.label or ""
    return f"{mark}{example.title}{': ' if readable else ''}{readable}{'' if example.stored else ' (numbers only)'}"


def _add_head(head: HeadReport | CrossHead, part: dict[str, Any], store: MatrixStore) -> None:
    assert head.weights is not None
    names = ["weights"]
    matrices: list[NDArray[Any]] = [store.weights(head.weights.numpy())]
    if isinstance(head, HeadReport):
        assert head.parents is not None
        assert head.hops is not None
        names += ["parents", "hops"]
        matrices += [encode_parents(head.parents.numpy()), encode_hops(head.hops.numpy())]
    if references := store.add(*matrices):
        part |= dict(zip(names, references, strict=True))


def _heads(model: ModelReport) -> list[HeadReport | CrossHead]:
    return [*model.heads, *model.cross]


def _count_weights(report: Report) -> int:
    models = [model for example in report.examples for model in example.models]
    matrices = [head.weights for model in models for head in _heads(model)]
    return sum(matrix.numel() for matrix in matrices if matrix is not None)
