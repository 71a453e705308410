"""The report as one HTML page that holds everything: style and pictures. It asks no network and runs no program."""

import base64
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from fna_lightning.reproduction.cells import CLAIM_COLUMNS, REGISTER_COLUMNS, ROW_COLUMNS, claim_texts, row_texts
from fna_lightning.reproduction.markdown import outcome
from fna_lightning.reproduction.runner import piece_folder
from fna_lightning.reproduction.verdict import VERDICTS

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def page(report: dict[str, Any], out: Path) -> str:
    """Return the page; every text in it is escaped."""
    style = files("fna_lightning.analysis").joinpath("page.css").read_text(encoding="utf-8")
    style += files("fna_lightning.reproduction").joinpath("page.css").read_text(encoding="utf-8")
    title, runs = escape(report["title"]), report["runs"]
    facts = (
        f"{runs['finished']} of {runs['needed']} runs finished, {runs['training_hours']} hours of training. "
        f"{report['machine']}. fna-lightning {report['version']}."
    )
    register = [[one[key] for key in REGISTER_COLUMNS] for one in report["deviations"]]
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{title}</title>
<style>
{style}
</style>
</head>
<body>
<header><h1>{title}</h1>
<p class="lead">{escape(report["says"])}</p>
<p class="lead"><b>Verdicts.</b> {escape(report["rule"])}</p>
<p class="hint">{escape(facts)}</p></header>
<main>
<section><h2>Overview</h2>{_overview(report["pieces"])}</section>
{"".join(_piece(piece, out) for piece in report["pieces"])}
<section id="deviations"><h2>Deviations</h2>
<p class="hint">Where the paper's text, the authors' code and this library differ, and what it changes.</p>
{_table(list(REGISTER_COLUMNS.values()), register, "words")}</section>
</main>
</body>
</html>
"""


def _overview(pieces: list[dict[str, Any]]) -> str:
    lines = []
    for piece in pieces:
        badges = "".join(
            f'<span class="verdict {_class(name)}">{count} {escape(name)}</span> '
            for name, count in piece["verdicts"].items()
        )
        told = escape(outcome(piece)) if piece["error"] or piece["not_run"] or not badges else badges
        lines.append(
            f'<tr><td><a href="#{escape(piece["name"])}">{escape(piece["title"])}</a></td>'
            f"<td>{escape(piece['says'])}</td><td>{told}</td><td>{piece['seconds']:.0f} s</td></tr>"
        )
    head = "<tr><th>piece</th><th>the paper</th><th>verdicts</th><th>time</th></tr>"
    return f'<div class="scroll"><table class="words">{head}{"".join(lines)}</table></div>'


def _piece(piece: dict[str, Any], out: Path) -> str:
    parts = [f'<section id="{escape(piece["name"])}"><h2>{escape(piece["title"])}</h2>']
    parts.append(f'<p class="hint"><code>{escape(piece["name"])}</code> {escape(piece["says"])}</p>')
    if piece["error"] or piece["not_run"]:
        kind = "differs" if piece["error"] else "not-run"
        parts.append(f'<p><span class="verdict {kind}">{escape(outcome(piece))}</span></p>')
    for name, caption in piece["figures"].items():
        picture = base64.b64encode((piece_folder(out, piece["name"]) / name).read_bytes()).decode("ascii")
        alt = escape(caption)
        parts.append(
            f'<figure><img src="data:image/png;base64,{picture}" alt="{alt}"><figcaption>{alt}</figcaption></figure>'
        )
    if piece["rows"]:
        parts.append(_table(ROW_COLUMNS, [row_texts(row) for row in piece["rows"]]))
    if piece["claims"]:
        parts.append(_table(CLAIM_COLUMNS, [claim_texts(claim) for claim in piece["claims"]]))
    parts += [f"<h3>{escape(one['title'])}</h3>{_table(one['columns'], one['lines'])}" for one in piece["tables"]]
    parts += [f'<p class="hint">{escape(note)}</p>' for note in piece["notes"]]
    return "\n".join([*parts, "</section>"])


def _table(columns: list[str], lines: list[list[str]], kind: str = "") -> str:
    head = "".join(f'<th class="{"long" if one == "verdict" else ""}">{escape(one)}</th>' for one in columns)
    body = "".join("<tr>" + "".join(map(_cell, line)) + "</tr>" for line in lines)
    return f'<div class="scroll"><table class="{kind}"><tr>{head}</tr>{body}</table></div>'


def _cell(text: str) -> str:
    verdict = next((name for name in VERDICTS if text == name or text.startswith(f"{name}:")), None)
    if verdict is None:
        return f"<td>{escape(text)}</td>"
    reason = text.removeprefix(verdict).removeprefix(": ")
    more = f'<span class="spread"> {escape(reason)}</span>' if reason else ""
    return f'<td class="long"><span class="verdict {_class(verdict)}">{escape(verdict)}</span>{more}</td>'


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")
