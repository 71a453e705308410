"""Showing the page of a report: in a notebook, or in the browser."""

import logging
import sys
import tempfile
import webbrowser
from html import escape
from pathlib import Path
from typing import Any

from fna_lightning.analysis.page import render_page
from fna_lightning.analysis.report import Report

log = logging.getLogger(__name__)

# height of the page in a notebook, in pixels
HEIGHT = 900


def notebook_html(report: Report) -> str:
    """Return the page as an element of a notebook's output, in a frame of its own."""
    page = escape(render_page(report), quote=True)
    title = escape(report.title, quote=True)
    return f'<iframe srcdoc="{page}" width="100%" height="{HEIGHT}" style="border: 0" title="{title}"></iframe>'


def show(report: Report) -> None:
    """Show the page in the output of a notebook if there is one, otherwise in the browser."""
    if in_notebook():
        from IPython.display import display

        display(report)
        return
    # The browser reads the file after this call has returned, so the file is not deleted.
    path = Path(tempfile.mkdtemp(prefix="fna-lightning-")) / "index.html"
    report.to_html(path)
    if not webbrowser.open(path.as_uri()):
        log.warning("there is no browser here; open %s", path)


def in_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython: Any = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return shell is not None and hasattr(shell, "kernel")
