"""The HTML page of a report: one file with style, script and data, which needs no network."""

import json
import re
from html import escape
from importlib.resources import files
from typing import Any

from fna_lightning.analysis.report import Report, to_json

# inside a script element these characters would end it, open a comment, or break a line of JavaScript
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def render_page(report: Report) -> str:
    """Return the page of a report; all data enters it as escaped text or as JSON, never as HTML."""
    assets = files("fna_lightning.analysis")
    parts = {
        "title": escape(report.title),
        "style": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "script": assets.joinpath("page.js").read_text(encoding="utf-8"),
        "data": embed(report),
    }
    page = assets.joinpath("page.html").read_text(encoding="utf-8")
    # one pass, so that placeholders inside inserted data are not replaced
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: parts[placeholder[1]], page)


def embed(value: Any) -> str:
    """Return JSON that is safe inside a script element, whatever texts it contains."""
    text = json.dumps(to_json(value, page=True), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character, replacement in _UNSAFE.items():
        text = text.replace(character, replacement)
    return text
