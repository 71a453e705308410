"""The report as Markdown, with its figures in files beside it."""

from typing import Any

from fna_lightning.reproduction.tables import (
    CLAIM_COLUMNS,
    DEVIATION_COLUMNS,
    ROW_COLUMNS,
    claim_texts,
    outcome,
    row_texts,
    run_facts,
)


def markdown_page(report: dict[str, Any]) -> str:
    """Return the report as Markdown; it links figures in artifacts/NAME/."""
    lines = [f"# {report['title']}", "", report["summary"], "", f"**Verdicts.** {report['rule']}", ""]
    lines += [run_facts(report), ""]
    overview = [
        [
            f"[{artifact['title']}](#{artifact['name']})",
            artifact["summary"],
            outcome(artifact),
            f"{artifact['seconds']:.0f}",
        ]
        for artifact in report["artifacts"]
    ]
    lines += [*table(["", "the paper", "verdicts", "seconds"], overview, raw=(0,)), ""]
    for artifact in report["artifacts"]:
        lines += _artifact(artifact)
    lines += ["## Deviations", "", "Where the paper's text, the authors' code and this library differ.", ""]
    deviations = [[deviation[key] for key in DEVIATION_COLUMNS] for deviation in report["deviations"]]
    return "\n".join([*lines, *table(list(DEVIATION_COLUMNS.values()), deviations), ""])


def table(columns: list[str], lines: list[list[str]], raw: tuple[int, ...] = ()) -> list[str]:
    """Return the lines of a Markdown table; cells are escaped except in the columns numbered in ``raw``."""
    cells = [[text if column in raw else _escaped(text) for column, text in enumerate(line)] for line in lines]
    rows = [columns, ["---"] * len(columns), *cells]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _artifact(artifact: dict[str, Any]) -> list[str]:
    name = artifact["name"]
    lines = [f'<a id="{name}"></a>', "", f"## {artifact['title']}", "", f"`{name}`: {artifact['summary']}", ""]
    if artifact["error"] or artifact["not_run"]:
        lines += [_escaped(outcome(artifact)), ""]
    for file_name, caption in artifact["figures"].items():
        lines += [f"![{caption}](artifacts/{name}/{file_name})", ""]
    if artifact["rows"]:
        lines += [*table(ROW_COLUMNS, [row_texts(row) for row in artifact["rows"]]), ""]
    if artifact["claims"]:
        lines += [*table(CLAIM_COLUMNS, [claim_texts(claim) for claim in artifact["claims"]]), ""]
    for further in artifact["tables"]:
        lines += [f"{further['title']}:", "", *table(further["columns"], further["lines"]), ""]
    return [*lines, *(line for note in artifact["notes"] for line in (_escaped(note), ""))]


def _escaped(text: str) -> str:
    """Return text that Markdown shows literally, also inside a table."""
    for character in "\\`*_|<>[]":
        text = text.replace(character, f"\\{character}")
    return " ".join(text.split())
