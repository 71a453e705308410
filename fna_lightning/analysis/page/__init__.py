"""The HTML page of a report: one file with style, scripts and data, which needs no network."""

import base64
import hashlib
import json
import re
from functools import cache
from html import escape
from importlib.resources import files

from fna_lightning.analysis.page.matrices import compress
from fna_lightning.analysis.page.payload import dump, page_data
from fna_lightning.analysis.report import Report

__all__ = ["render_page"]


def render_page(report: Report) -> str:
    """Return the page of a report.

    All data enters the page as escaped text or in base64, never as HTML, and the policy of the page allows only its two
    own scripts, by their hashes.
    """
    assets = files("fna_lightning.analysis.page")
    data, matrices = page_data(report)
    script = assets.joinpath("page.js").read_text(encoding="utf-8")
    plotly, plotly_hash = _plotly()
    parts = {
        "title": escape(report.title),
        "style": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "script": script,
        "script_hash": _hash(script),
        "plotly": plotly,
        "plotly_hash": plotly_hash,
        "data": compress(dump(data)),
        "matrices": json.dumps(matrices, separators=(",", ":")),
    }
    page = assets.joinpath("page.html").read_text(encoding="utf-8")
    # one pass, so that placeholders inside inserted data are not replaced
    return re.sub(r"\{\{(\w+)\}\}", lambda placeholder: parts[placeholder[1]], page)


@cache
def _plotly() -> tuple[str, str]:
    """Return Plotly's script, compressed, and its hash."""
    from plotly.offline import get_plotlyjs

    script = get_plotlyjs()
    return compress(script.encode()), _hash(script)


def _hash(script: str) -> str:
    """Return the hash of a script as a source of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii")
