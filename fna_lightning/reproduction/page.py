"""The report as one self-contained HTML page without scripts or network access."""

import base64
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from fna_lightning.reproduction.runner import artifact_folder
from fna_lightning.reproduction.tables import (
    CLAIM_COLUMNS,
    DEVIATION_COLUMNS,
    ROW_COLUMNS,
    claim_texts,
    outcome,
    row_texts,
    run_facts,
)
from fna_lightning.reproduction.verdict import VERDICTS

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


def html_page(report: dict[str, Any], out: Path) -> str:
    """Return the report as HTML; all text is escaped and the figures in ``out`` are embedded."""
    style = files("fna_lightning.analysis.page").joinpath("page.css").read_text(encoding="utf-8")
    style += files("fna_lightning.reproduction").joinpath("page.css").read_text(encoding="utf-8")
    title = escape(report["title"])
    deviations = [[deviation[key] for key in DEVIATION_COLUMNS] for deviation in report["deviations"]]
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
<p class="lead">{escape(report["summary"])}</p>
<p class="lead"><b>Verdicts.</b> {escape(report["rule"])}</p>
<p class="hint">{escape(run_facts(report))}</p></header>
<main>
<section><h2>Overview</h2>{_overview(report["artifacts"])}</section>
{"".join(_artifact(artifact, out) for artifact in report["artifacts"])}
<section id="deviations"><h2>Deviations</h2>
<p class="hint">Where the paper's text, the authors' code and this library differ, and the effect of it.</p>
{_table(list(DEVIATION_COLUMNS.values()), deviations, "words")}</section>
</main>
</body>
</html>
"""


def _overview(artifacts: list[dict[str, Any]]) -> str:
    lines = []
    for artifact in artifacts:
        badges = "".join(
            f'<span class="verdict {_class(name)}">{count} {escape(name)}</span> '
            for name, count in artifact["verdicts"].items()
        )
        verdicts = badges
        if artifact["error"] or artifact["not_run"] or not badges:
            verdicts = escape(outcome(artifact))
        lines.append(
            f'<tr><td><a href="#{escape(artifact["name"])}">{escape(artifact["title"])}</a></td>'
            f"<td>{escape(artifact['summary'])}</td><td>{verdicts}</td><td>{artifact['seconds']:.0f} s</td></tr>"
        )
    head = "<tr><th>artifact</th><th>the paper</th><th>verdicts</th><th>time</th></tr>"
    return f'<div class="scroll"><table class="words">{head}{"".join(lines)}</table></div>'


def _artifact(artifact: dict[str, Any], out: Path) -> str:
    parts = [f'<section id="{escape(artifact["name"])}"><h2>{escape(artifact["title"])}</h2>']
    parts.append(f'<p class="hint"><code>{escape(artifact["name"])}</code> {escape(artifact["summary"])}</p>')
    if artifact["error"] or artifact["not_run"]:
        badge = "differs" if artifact["error"] else "not-run"
        parts.append(f'<p><span class="verdict {badge}">{escape(outcome(artifact))}</span></p>')
    for file_name, caption in artifact["figures"].items():
        picture = base64.b64encode((artifact_folder(out, artifact["name"]) / file_name).read_bytes()).decode("ascii")
        alt = escape(caption)
        parts.append(
            f'<figure><img src="data:image/png;base64,{picture}" alt="{alt}"><figcaption>{alt}</figcaption></figure>'
        )
    if artifact["rows"]:
        parts.append(_table(ROW_COLUMNS, [row_texts(row) for row in artifact["rows"]]))
    if artifact["claims"]:
        parts.append(_table(CLAIM_COLUMNS, [claim_texts(claim) for claim in artifact["claims"]]))
    parts += [
        f"<h3>{escape(table['title'])}</h3>{_table(table['columns'], table['lines'])}" for table in artifact["tables"]
    ]
    parts += [f'<p class="hint">{escape(note)}</p>' for note in artifact["notes"]]
    return "\n".join([*parts, "</section>"])


def _table(columns: list[str], lines: list[list[str]], css_class: str = "") -> str:
    head = "".join(f'<th class="{"long" if name == "verdict" else ""}">{escape(name)}</th>' for name in columns)
    body = "".join("<tr>" + "".join(map(_cell, line)) + "</tr>" for line in lines)
    return f'<div class="scroll"><table class="{css_class}"><tr>{head}</tr>{body}</table></div>'


def _cell(text: str) -> str:
    verdict = next((name for name in VERDICTS if text == name or text.startswith(f"{name}:")), None)
    if verdict is None:
        return f"<td>{escape(text)}</td>"
    reason = text.removeprefix(verdict).removeprefix(": ")
    more = f'<span class="spread"> {escape(reason)}</span>' if reason else ""
    return f'<td class="long"><span class="verdict {_class(verdict)}">{escape(verdict)}</span>{more}</td>'


def _class(verdict: str) -> str:
    return verdict.replace(" ", "-")
