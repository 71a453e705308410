"""Tables of the comparison, and its page fields.md and data fields.json."""

import math
from typing import Any

import numpy as np

from fna_lightning.experiments.markdown import machine
from fna_lightning.reproduction.artifact import Table
from fna_lightning.reproduction.fields.attentions import ATTENTIONS
from fna_lightning.reproduction.fields.comparison import LEVEL, OURS, Comparison, mean_errors, summary
from fna_lightning.reproduction.fields.references import LABELS
from fna_lightning.reproduction.fields.study import FieldResults
from fna_lightning.reproduction.fields.tasks import DEEP_LEARNING_RATE, TASKS, set_label
from fna_lightning.reproduction.markdown import table
from fna_lightning.version import VERSION

MECHANISM = """\
Far beyond kappa the weight r^-(d_M + alpha) of FNA does not change when all distances are multiplied by a \
number, so its effective width follows the density of the points. The Gaussian and dot-product attention have \
one width per head, which is too wide where points are dense and too narrow where they are sparse. Levy noise \
has the same tail, r^-(d + alpha), so FNA is close to Bayes' rule for cues with such noise, as the Gaussian is for \
Gaussian noise. On a field with one length scale, one width is right, and the Gaussian should win."""

METHOD = """\
One-layer attentive neural process, 4 heads of width 8, about 9,000 parameters, {steps} steps of 16 episodes, \
AdamW with learning rate 0.01 ("two layers of width 64": a transformer neural process with two pre-LN layers and \
learning rate {deep_rate:g}); {seeds} seeds; {episodes} test episodes for each evaluation set; pixels of \
{pixels}. The same seed gives all attentions the same initial weights and training episodes. Every attention but \
uniform learns one scale (kappa or temperature) per head.
The start value of that scale is the better of two on validation episodes, with a seed that is not used \
otherwise. Test episodes are used for no choice. On terrain, the west trains and validates and the east tests.
On terrain and the rough field, values are standardized by mean and standard deviation of the context of each \
episode. The deviation is taken as at least 0.01 of that of the whole field; no test context of the terrain is \
that flat.
The p-values are those of paired t-tests over seeds, corrected by Holm's method for all comparisons in the \
table. "± episodes" is the 95 % interval over groups of 16 test episodes, with errors averaged over seeds.
References: the power of the inverse distances and the kernel of the Gaussian process (Matern; this is simple \
kriging) are chosen on validation episodes for each evaluation set separately. Bayes' rule knows the \
distribution of the noise."""


def error_table(results: FieldResults) -> Table:
    """Return the errors of all attentions and references."""
    names = [name for name in results.scale.attentions if any(name in errors for errors in results.errors.values())]
    references = [label for label in LABELS if any(label in errors for errors in results.references.values())]
    lines = []
    for task_name, by_attention in results.errors.items():
        task = TASKS[task_name]
        for eval_set in (*task.primary, *task.further):
            cells = [_mean_text(results, task_name, name, eval_set) for name in names]
            errors = results.references.get(task_name, {})
            means = [_reference_text(errors.get(label, {}).get(eval_set)) for label in references]
            if by_attention and task.in_tables:
                label = f"{task.label}: {set_label(eval_set)} ({task.error.upper()})"
                lines.append([label, *cells, *means])
    columns = ["", *(ATTENTIONS[name].label for name in names), *references]
    return Table("mean error on the test episodes ± 95 % interval over seeds; smaller is better", columns, lines)


def comparison_table(results: FieldResults) -> Table:
    """Return the paired tests."""
    lines = [
        [
            f"{TASKS[item.task].label}: {set_label(item.eval_set)}",
            ATTENTIONS[item.attention].label,
            f"{item.difference:+.4f}",
            _number(item.seed_half_width),
            _number(item.episode_half_width),
            _p_text(item.p_value),
            _p_text(item.corrected),
            _verdict_text(item),
        ]
        for item in results.comparisons
    ]
    columns = ["", "FNA against", "difference", "± seeds", "± episodes", "p", "corrected p", "better"]
    title = f"FNA minus each other attention, paired by seed; better: corrected p < {LEVEL:g}"
    return Table(title, columns, lines)


def start_table(results: FieldResults) -> Table:
    """Return the start values with their errors on validation episodes."""
    lines = []
    for task, by_attention in results.starts.items():
        for name, errors in by_attention.items():
            if len(errors) > 1:
                texts = [f"{start:.3g} ({_number(error)})" for start, error in errors.items()]
                lines.append([TASKS[task].label, ATTENTIONS[name].label, ATTENTIONS[name].setting, *texts])
    title = "start values with their validation error (geometric mean over the evaluation sets)"
    return Table(title, ["", "attention", "setting", "chosen", "other"], lines)


def losses(results: FieldResults) -> list[str]:
    """Return a sentence for every evaluation set on which another attention or a reference is better than FNA."""
    sentences = []
    for task_name, by_attention in results.errors.items():
        task = TASKS[task_name]
        if not task.in_tables or OURS not in by_attention:
            continue
        for eval_set in (*task.primary, *task.further):
            ours = summary(by_attention[OURS], eval_set).mean
            better = []
            for name, by_seed in by_attention.items():
                mean = summary(by_seed, eval_set).mean
                if name != OURS and mean < ours:
                    star = _significance(results, task_name, eval_set, name)
                    better.append(f"{ATTENTIONS[name].label} {mean:.4f}{star}")
            for label, errors in results.references.get(task_name, {}).items():
                if np.mean(errors[eval_set]) < ours:
                    better.append(f"{label} {np.mean(errors[eval_set]):.4f}")
            if better:
                sentences.append(f"{task.label}, {set_label(eval_set)}: FNA {ours:.4f}; {', '.join(better)}.")
    return sentences


def method(results: FieldResults) -> list[str]:
    """Return how the comparison was made, in sentences."""
    scale = results.scale
    pixels = "crops of scikit-learn's photographs instead of CIFAR-10" if scale.embedded else "CIFAR-10"
    text = METHOD.format(
        steps=scale.steps,
        seeds=scale.seeds,
        episodes=scale.episodes,
        pixels=pixels,
        deep_rate=DEEP_LEARNING_RATE,
    )
    return text.splitlines()


def markdown(results: FieldResults, command: str, figures: dict[str, str]) -> str:
    """Return the page fields.md."""
    lines = ["# Scattered fields", "", MECHANISM, ""]
    if results.missing:
        lines += [f"**Not complete: {results.missing} runs are missing.**", ""]
    for sentence in method(results):
        lines += [sentence, ""]
    lines += ["```", command, "```", ""]
    hours = f"{results.training_hours:.2f} hours of training on one thread each"
    lines += [f"{hours}. {machine()}. fna-lightning {VERSION}.", ""]
    errors = error_table(results)
    lines += ["## Errors", "", f"{errors.title}:", "", *_bold_table(errors), ""]
    for name, caption in figures.items():
        lines += [f"![{caption}]({name})", "", caption, ""]
    lines += ["## Where FNA is not the best", ""]
    lines += [f"- {sentence}" for sentence in losses(results)] or ["Nowhere in this table."]
    lines += ["", "`*` marks a difference with corrected p < 0.01.", ""]
    for further, heading in ((comparison_table(results), "Paired tests"), (start_table(results), "Start values")):
        lines += [f"## {heading}", "", f"{further.title}:", "", *table(further.columns, further.lines), ""]
    return "\n".join(lines)


def _bold_table(errors: Table) -> list[str]:
    """Return the table of errors in Markdown, with the best attention of each line in bold type."""
    attentions = len(errors.columns) - 1 - sum(column in LABELS for column in errors.columns)
    lines = []
    for line in errors.lines:
        values = [float(cell.split()[0]) if cell else math.inf for cell in line[1 : 1 + attentions]]
        best = values.index(min(values)) + 1
        lines.append([f"**{cell}**" if column == best else cell for column, cell in enumerate(line)])
    return table(errors.columns, lines, raw=tuple(range(1, len(errors.columns))))


def plain(results: FieldResults, command: str) -> dict[str, Any]:
    """Return the results as plain values for fields.json."""
    return _finite(
        {
            "version": VERSION,
            "machine": machine(),
            "command": command,
            "scale": vars(results.scale),
            "missing_runs": results.missing,
            "training_hours": round(results.training_hours, 3),
            "errors": {
                task: {
                    name: {
                        eval_set: {str(seed): value for seed, value in mean_errors(by_seed, eval_set).items()}
                        for eval_set in next(iter(by_seed.values()))
                    }
                    for name, by_seed in by_attention.items()
                }
                for task, by_attention in results.errors.items()
            },
            "references": {
                task: {
                    label: {eval_set: float(np.mean(values)) for eval_set, values in errors.items()}
                    for label, errors in by_label.items()
                }
                for task, by_label in results.references.items()
            },
            "starts": {
                task: {
                    name: {f"{start:.3g}": error for start, error in errors.items()} for name, errors in by_name.items()
                }
                for task, by_name in results.starts.items()
            },
            "neighbors": {
                task: {
                    name: {eval_set: np.mean(values, axis=0).tolist() for eval_set, values in sets.items()}
                    for name, sets in by_name.items()
                }
                for task, by_name in results.neighbors.items()
            },
            "comparisons": [{**vars(item), "better": item.verdict} for item in results.comparisons],
        }
    )


def _finite(value: Any) -> Any:
    """Return the value with None in place of NaN and infinity, which JSON does not have."""
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _mean_text(results: FieldResults, task: str, attention: str, eval_set: str) -> str:
    by_seed = results.errors[task].get(attention)
    if not by_seed:
        return ""
    summarized = summary(by_seed, eval_set)
    interval = "" if math.isnan(summarized.half_width) else f" ± {summarized.half_width:.4f}"
    return f"{summarized.mean:.4f}{interval}"


def _reference_text(errors: list[float] | None) -> str:
    return "" if errors is None else f"{np.mean(errors):.4f}"


def _significance(results: FieldResults, task: str, eval_set: str, attention: str) -> str:
    key = (task, eval_set, attention)
    return "*" * any(
        (item.task, item.eval_set, item.attention) == key and item.verdict == "the other"
        for item in results.comparisons
    )


def _verdict_text(item: Comparison) -> str:
    return ATTENTIONS[item.attention].label if item.verdict == "the other" else item.verdict


def _number(value: float) -> str:
    return "" if not math.isfinite(value) else f"{value:.4f}"


def _p_text(value: float) -> str:
    return "" if math.isnan(value) else f"{value:.1g}" if value < 0.01 else f"{value:.2f}"
