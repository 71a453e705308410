"""The report as Markdown, its pictures as files beside it."""

from typing import Any

from fna_lightning.reproduction.cells import CLAIM_COLUMNS, REGISTER_COLUMNS, ROW_COLUMNS, claim_texts, row_texts


def markdown(report: dict[str, Any]) -> str:
    """Return the page; pictures are looked for in pieces/NAME/."""
    runs = report["runs"]
    lines = [f"# {report['title']}", "", report["says"], "", f"**Verdicts.** {report['rule']}", ""]
    facts = (
        f"{runs['finished']} of {runs['needed']} runs finished, {runs['training_hours']} hours of training. "
        f"{report['machine']}. fna-lightning {report['version']}."
    )
    lines += [facts, ""]
    overview = [
        [f"[{piece['title']}](#{piece['name']})", piece["says"], outcome(piece), f"{piece['seconds']:.0f}"]
        for piece in report["pieces"]
    ]
    lines += [*table(["", "the paper", "verdicts", "seconds"], overview, raw=(0,)), ""]
    for piece in report["pieces"]:
        lines += _piece(piece)
    lines += ["## Deviations", "", "Where the paper's text, the authors' code and this library differ.", ""]
    register = [[one[key] for key in REGISTER_COLUMNS] for one in report["deviations"]]
    return "\n".join([*lines, *table(list(REGISTER_COLUMNS.values()), register), ""])


def outcome(piece: dict[str, Any]) -> str:
    """Return how a piece went, in words."""
    if piece["error"]:
        return f"broken: {piece['error']}"
    if piece["not_run"]:
        return f"not run: {piece['not_run']}"
    return (
        ", ".join(f"{count} {name}" for name, count in piece["verdicts"].items()) or "shown, without a number to hold"
    )


def table(columns: list[str], lines: list[list[str]], raw: tuple[int, ...] = ()) -> list[str]:
    """Return a table; only the columns ``raw`` may hold marks of their own."""
    cells = [[one if place in raw else _escaped(one) for place, one in enumerate(line)] for line in lines]
    rows = [columns, ["---"] * len(columns), *cells]
    return ["| " + " | ".join(row) + " |" for row in rows]


def _piece(piece: dict[str, Any]) -> list[str]:
    lines = [f'<a id="{piece["name"]}"></a>', "", f"## {piece['title']}", "", f"`{piece['name']}`: {piece['says']}", ""]
    if piece["error"] or piece["not_run"]:
        lines += [_escaped(outcome(piece)), ""]
    for name, caption in piece["figures"].items():
        lines += [f"![{caption}](pieces/{piece['name']}/{name})", ""]
    if piece["rows"]:
        lines += [*table(ROW_COLUMNS, [row_texts(row) for row in piece["rows"]]), ""]
    if piece["claims"]:
        lines += [*table(CLAIM_COLUMNS, [claim_texts(claim) for claim in piece["claims"]]), ""]
    for one in piece["tables"]:
        lines += [f"{one['title']}:", "", *table(one["columns"], one["lines"]), ""]
    return [*lines, *(line for note in piece["notes"] for line in (_escaped(note), ""))]


def _escaped(text: str) -> str:
    """Return text that Markdown shows as it is, inside a table too."""
    for sign in "\\`*_|<>[]":
        text = text.replace(sign, f"\\{sign}")
    return " ".join(text.split())
