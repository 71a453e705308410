"""Figures of the comparison: error against n, against the tail of the noise, a phase diagram, and the mechanism."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.image import AxesImage
from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

from fna_lightning.plotting.style import DIVERGING
from fna_lightning.reproduction.drawing import legend
from fna_lightning.reproduction.fields.attentions import ATTENTIONS
from fna_lightning.reproduction.fields.comparison import summary
from fna_lightning.reproduction.fields.references import BAYES, INVERSE, NEAREST, PROCESS
from fna_lightning.reproduction.fields.study import FieldResults
from fna_lightning.reproduction.fields.tasks import TASKS, FieldTask, curve_sizes, tail_tasks

REFERENCE_LINES = {PROCESS: "-", INVERSE: "--", NEAREST: ":", BAYES: "-."}
# largest factor between the errors of two attentions that the colors show
LARGEST_FACTOR = 2.0


def error_figure(results: FieldResults) -> Figure:
    """Return the error against the number of context points, one panel for each task."""
    tasks = [TASKS[name] for name in results.errors if TASKS[name].in_tables]
    columns = min(4, len(tasks))
    rows = math.ceil(len(tasks) / columns)
    figure = Figure(figsize=(3.6 * columns, 3.1 * rows + 0.6), layout="constrained")
    handles: dict[str, Any] = {}
    for position, task in enumerate(tasks):
        axes = figure.add_subplot(rows, columns, position + 1)
        _draw_errors(axes, results, task)
        handles |= dict(zip(*reversed(axes.get_legend_handles_labels()), strict=True))
    # the attentions first, in the order of the tables
    order = [ATTENTIONS[name].label for name in results.scale.attentions] + list(REFERENCE_LINES)
    handles = {label: handles[label] for label in order if label in handles}
    figure.legend(handles.values(), handles.keys(), loc="outside lower center", ncols=6, frameon=False, fontsize=9)
    return figure


def tail_figure(results: FieldResults) -> Figure:
    """Return the error above that of Bayes' rule against the tail index of the noise, for small and large n."""
    tasks = {tail: task for tail, task in tail_tasks(results.scale.tasks).items() if task.name in results.errors}
    sizes = ("n64", "n1024")
    figure = Figure(figsize=(4.4 * len(sizes), 3.6), layout="constrained")
    for position, size in enumerate(sizes):
        axes = figure.add_subplot(1, len(sizes), position + 1)
        for name in results.scale.attentions:
            drawn = [tail for tail, task in tasks.items() if name in results.errors[task.name]]
            excess, half_widths = [], []
            for tail in sorted(drawn):
                task_name = tasks[tail].name
                summarized = summary(results.errors[task_name][name], size)
                excess.append(summarized.mean - _reference(results, task_name, BAYES, size))
                half_widths.append(_finite(summarized.half_width))
            # uniform attention does not learn recall, and its error would hide the others
            if drawn and name != "uniform" and len(drawn) == len(tasks):
                color, marker = ATTENTIONS[name].style
                places = [sorted(tasks).index(tail) for tail in sorted(drawn)]
                label = ATTENTIONS[name].label
                axes.errorbar(
                    places, excess, half_widths, color=color, marker=marker, capsize=3, markersize=5, label=label
                )
        ticks = ["∞ (Gaussian)" if math.isinf(tail) else f"{tail:g}" for tail in sorted(tasks)]
        axes.set_xticks(range(len(tasks)), ticks)
        axes.set(xlabel="degrees of freedom of the noise", ylabel="NLL above Bayes' rule")
        axes.set_title(f"recall from noisy cues, n = {size[1:]}", fontsize="medium")
        axes.grid(alpha=0.3)
    entries = figure.axes[0].get_legend_handles_labels()
    figure.legend(*entries, loc="outside lower center", ncols=len(entries[1]), frameon=False, fontsize="small")
    return figure


def phase_figure(results: FieldResults) -> Figure:
    """Return where FNA has the smaller error and where the Gaussian has it: recall by tail index, fields by task."""
    tails = tail_tasks(results.scale.tasks)
    recall = {
        "∞ (Gaussian)" if math.isinf(tail) else f"nu = {tail:g}": tails[tail].name
        for tail in sorted(tails, reverse=True)
    }
    fields = {
        TASKS[name].label.replace(", trained", ",\ntrained"): name
        for name in ("smooth", "pixels-all", "pixels", "rough", "terrain")
    }
    panels = {"recall, by tail of the noise": recall, "fields": fields}
    figure = Figure(figsize=(11.5, 3.8), layout="constrained")
    image = None
    for position, (title, rows) in enumerate(panels.items()):
        rows = {label: name for label, name in rows.items() if _both(results, name)}
        if rows:
            axes = figure.add_subplot(1, 2, position + 1)
            image = _draw_phase(axes, results, rows)
            axes.set_title(title, fontsize="medium")
    if image is not None:
        bar = figure.colorbar(image, ax=figure.axes, ticks=[-1.0, -0.5, 0.0, 0.5, 1.0])
        bar.ax.set_yticklabels(["FNA 2 x", "1.4 x", "equal", "1.4 x", "Gaussian 2 x"])
        bar.set_label("smaller error")
    return figure


def neighbor_figure(results: FieldResults) -> Figure:
    """Return the effective number of neighbors of the narrowest head against n: the mechanism."""
    names = [name for name in ("terrain", "pixels", "smooth") if name in results.neighbors]
    figure = Figure(figsize=(3.8 * max(1, len(names)), 3.4), layout="constrained")
    for position, task in enumerate(names):
        axes = figure.add_subplot(1, len(names), position + 1)
        for name, sets in results.neighbors[task].items():
            if name in ("fna", "gaussian", "qk-norm", "ssmax", "student"):
                sizes = sorted(sets, key=lambda size: int(size[1:]))
                means = [float(np.mean([min(heads) for heads in sets[size]])) for size in sizes]
                color, marker = ATTENTIONS[name].style
                numbers = [int(size[1:]) for size in sizes]
                axes.plot(numbers, means, color=color, marker=marker, markersize=5, label=ATTENTIONS[name].label)
        axes.set(xlabel="context points n", ylabel="effective number of neighbors", xscale="log", yscale="log")
        axes.set_title(TASKS[task].label, fontsize="small")
        plain_ticks(axes, TASKS[task].episodes.eval_context)
    if names:
        legend(figure.axes[0])
    return figure


def _draw_errors(axes: Axes, results: FieldResults, task: FieldTask) -> None:
    for name, by_seed in results.errors[task.name].items():
        sizes = curve_sizes(next(iter(by_seed.values())))
        summaries = [summary(by_seed, eval_set) for eval_set in sizes.values()]
        half_widths = [_finite(item.half_width) for item in summaries]
        color, marker = ATTENTIONS[name].style
        means = [item.mean for item in summaries]
        label = ATTENTIONS[name].label
        axes.errorbar([*sizes], means, half_widths, color=color, marker=marker, capsize=2, markersize=4, label=label)
    for label, errors in results.references.get(task.name, {}).items():
        sizes = curve_sizes(errors)
        means = [float(np.mean(errors[eval_set])) for eval_set in sizes.values()]
        axes.plot([*sizes], means, REFERENCE_LINES[label], color="black", linewidth=1, label=label)
    axes.set(xlabel="context points n", ylabel=task.error.upper(), xscale="log", yscale="log")
    axes.set_title(task.label, fontsize="small")
    plain_ticks(axes, task.episodes.eval_context)


def _draw_phase(axes: Axes, results: FieldResults, rows: Mapping[str, str]) -> AxesImage:
    """Draw the logarithm of the ratio of the errors; each number is the error of FNA / that of the Gaussian."""
    sizes = sorted({size for name in rows.values() for size in _sizes(results, name)})
    ratios = np.full((len(rows), len(sizes)), np.nan)
    for row, name in enumerate(rows.values()):
        for size, eval_set in _sizes(results, name).items():
            ours, gaussian = (summary(results.errors[name][key], eval_set).mean for key in ("fna", "gaussian"))
            ratios[row, sizes.index(size)] = ours / gaussian
    limit = math.log2(LARGEST_FACTOR)
    image = axes.imshow(np.log2(ratios), cmap=DIVERGING, vmin=-limit, vmax=limit, aspect="auto")
    for (row, column), ratio in np.ndenumerate(ratios):
        if math.isfinite(ratio):
            dark = abs(math.log2(ratio)) > 0.7 * limit
            text = f"{ratio:.2f}{_mark(results, [*rows.values()][row], sizes[column])}"
            axes.text(column, row, text, ha="center", va="center", fontsize=9, color="white" if dark else "black")
    axes.set_xticks(range(len(sizes)), [str(size) for size in sizes])
    axes.set_yticks(range(len(rows)), list(rows), fontsize=8)
    axes.set_xlabel("context points n")
    return image


def _mark(results: FieldResults, task: str, size: int) -> str:
    """Return a star if FNA and the Gaussian differ significantly."""
    return "*" * any(
        item.verdict != "no difference"
        for item in results.comparisons
        if (item.task, item.eval_set, item.attention) == (task, f"n{size}", "gaussian")
    )


def _sizes(results: FieldResults, task: str) -> dict[int, str]:
    return curve_sizes(next(iter(results.errors[task]["fna"].values())))


def _both(results: FieldResults, task: str) -> bool:
    return {"fna", "gaussian"} <= set(results.errors.get(task, {}))


def _reference(results: FieldResults, task: str, label: str, eval_set: str) -> float:
    errors = results.references.get(task, {}).get(label, {})
    return float(np.mean(errors[eval_set])) if eval_set in errors else math.nan


def plain_ticks(axes: Axes, sizes: Sequence[int]) -> None:
    """Label the axes with the numbers of context points and with plain numbers."""
    axes.minorticks_off()
    axes.set_xticks(sizes, [str(size) for size in sizes])
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:.3g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.grid(alpha=0.3)


def _finite(value: float) -> float:
    return value if math.isfinite(value) else 0.0
