"""Scattered fields: where multiscale attention wins, and where it loses."""

import json

from fna_lightning.reproduction.artifact import Artifact, Result
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.scales import Scale
from fna_lightning.utils.console import wide_console
from fna_lightning.utils.files import write_text

CAPTIONS = {
    "fields_errors": "Error against the number of context points. Black lines are classical references.",
    "fields_tail": "Recall from noisy cues: error above that of Bayes' rule against the tail of the noise. The noise "
    "is scaled so that Bayes' rule has the same error at n = 64 for every tail.",
    "fields_phase": "Error of FNA / error of the Gaussian: blue where FNA is better, red where the Gaussian is. A star "
    "marks corrected p < 0.01, where it was tested.",
    "fields_neighbors": "Effective number of neighbors of the narrowest head: proportional to n for a fixed "
    "width, constant for a width that follows the density of the points.",
}


def run(context: Context) -> Result:
    """Train what is missing, then write tables, figures, fields.md and fields.json."""
    from fna_lightning.reproduction.fields import figures, report
    from fna_lightning.reproduction.fields.scales import FIELD_SCALES
    from fna_lightning.reproduction.fields.study import collect, run_study

    scale, folder = FIELD_SCALES[context.scale.name], context.runs / "fields"
    failures = run_study(scale, folder, context.workers, wide_console()) if context.train else []
    results = collect(scale, folder)
    if not results.errors:
        # An error makes the next call continue.
        raise RuntimeError(failures[0] if failures else "no run has finished; omit --no-train to train")
    drawn = {
        "fields_errors": figures.error_figure(results),
        "fields_tail": figures.tail_figure(results),
        "fields_phase": figures.phase_figure(results),
        "fields_neighbors": figures.neighbor_figure(results),
    }
    pictures = {context.save(figure, name): CAPTIONS[name] for name, figure in drawn.items()}
    command = f"fna-lightning reproduce fields --scale {context.scale.name}"
    write_text(context.folder / "fields.md", report.markdown(results, command, pictures))
    write_text(context.folder / "fields.json", json.dumps(report.plain(results, command), indent=1) + "\n")
    tables = [report.error_table(results), report.comparison_table(results), report.start_table(results)]
    notes = [report.MECHANISM, *report.method(results)]
    notes += [f"Not the best: {sentence}" for sentence in report.losses(results)]
    if results.missing:
        # An error makes the next call continue; fields.md has the results so far.
        raise RuntimeError(
            f"{results.missing} runs are missing; rerun the command to continue. {' '.join(failures[:3])}"
        )
    return Result(tables=tables, figures=pictures, notes=notes)


def size(scale: Scale) -> str:
    """Return how much is trained at a scale."""
    from fna_lightning.reproduction.fields.scales import FIELD_SCALES
    from fna_lightning.reproduction.fields.study import choice_runs, task_attentions

    sizes = FIELD_SCALES[scale.name]
    compared = sizes.seeds * sum(len(task_attentions(sizes, task)) for task in sizes.tasks)
    pixels = "scikit-learn's photographs" if sizes.embedded else "CIFAR-10"
    return (
        f"Scattered fields: {len(choice_runs(sizes))} runs that choose start values and {compared} compared runs "
        f"({sizes.seeds} seeds) of {sizes.steps} steps with about 9,000 parameters; pixels of {pixels}. A run of "
        "1000 steps takes about 10 seconds on one core."
    )


ARTIFACT = Artifact(
    "fields",
    "Scattered fields: where multiscale attention wins",
    "Not in the paper: a field is predicted from scattered measurements; strong baselines, classical references.",
    run,
    size=size,
)
