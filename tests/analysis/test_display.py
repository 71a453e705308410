"""Showing a report in a notebook and in the browser."""

import sys
from html import unescape
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

import pytest

from fna_lightning.analysis import display
from fna_lightning.analysis.page import render_page
from fna_lightning.analysis.report import Report

from helpers.reports import text_report


@pytest.fixture(scope="module")
def report() -> Report:
    return text_report(['the "plot"', "</script>", "was", "gripping"], models=1)


def test_a_notebook_shows_the_page_in_a_frame(report: Report) -> None:
    html = report._repr_html_()
    assert html.startswith('<iframe srcdoc="')
    # the page is one quoted attribute, so that nothing of it reaches the notebook
    attribute = html.split('"')[1]
    assert "<" not in attribute
    assert unescape(attribute) == render_page(report)


def test_show_opens_the_browser_outside_of_notebooks(
    report: Report, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(display.tempfile, "mkdtemp", lambda prefix: str(tmp_path))
    monkeypatch.setattr(display.webbrowser, "open", lambda address: bool(opened.append(address)))
    monkeypatch.setattr(display, "in_notebook", lambda: False)
    report.show()
    (address,) = opened
    assert Path(url2pathname(urlsplit(address).path)).read_text(encoding="utf-8") == render_page(report)
    assert f"there is no browser here; open {tmp_path / 'index.html'}" in caplog.text


def test_show_displays_the_report_in_a_notebook(report: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    displayed: list[Any] = []
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=displayed.append))
    report.show()
    assert displayed == [report]
    del shell.kernel
    assert not display.in_notebook()
