"""The HTML page of a report: size, policy, encoded matrices, and its behavior in a browser."""

import asyncio
import gzip
import html
import json
import re
from base64 import b64decode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fna_lightning.analysis import figures
from fna_lightning.analysis.page import render_page
from fna_lightning.analysis.page.matrices import NO_PARENT, NO_PATH, MatrixStore, encode_hops, encode_parents, planes
from fna_lightning.analysis.page.payload import page_data, rounded
from fna_lightning.analysis.report import ExampleReport, HeadReport, ModelInfo, ModelReport, Report, to_json
from fna_lightning.graph import MEASURES, shortest_path

from helpers.browser import CHROMIUM, Tab, browser
from helpers.reports import CROSS_LAYER, LAYERS, field_report, image_report, text_report, translation_report

# Plotly would show the first three as bold text, as a link and as "<", and HTML would run the others
HOSTILE = ["<b>bold</b>", '<a href="https://evil.example">link</a>', "&lt;", "</script><script>alert(1)</script>"]
WORDS = ["the", "plot", "was", "not", *HOSTILE, "<img src=x onerror=alert(2)>", "{{data}}", "%{z}", "gripping"]
FIRST, SECOND = LAYERS
# smallest positive number of the page's weights
FLOAT16 = 2**-24


def in_a_browser(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that starts Chromium."""
    skip = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
    return pytest.mark.e2e(skip(test))


def visit(folder: Path, report: Report, actions: Callable[[Tab], Awaitable[Any]]) -> Any:
    """Open the page of a report in a browser, and return the result of ``actions``; the console must stay empty."""
    pytest.importorskip("aiohttp", reason="the browser is driven over a web socket: pip install aiohttp")
    (folder / "index.html").write_text(render_page(report), encoding="utf-8")

    async def run() -> Any:
        async with browser(folder / "profile") as tab:
            await tab.emulate(1280, 900, "light")
            await tab.open((folder / "index.html").as_uri())
            await drawn(tab, "grid")
            result = await actions(tab)
            assert tab.problems == []
            return result

    return asyncio.run(run())


async def drawn(tab: Tab, name: str, model: int = 0) -> None:
    """Scroll to a figure and wait until it is drawn."""
    node = f"document.querySelector(\"[data-name='{name}'].plot[data-model='{model}']\")"
    await tab.wait(node)
    await tab.run(f"{node}.scrollIntoView({{block: 'center'}})")
    await tab.wait(f"{node}.data && {node}.querySelector('.main-svg')")


async def trace(tab: Tab, name: str, model: int = 0) -> list[dict[str, Any]]:
    """Return the traces of a figure."""
    await drawn(tab, name, model)
    return await tab.run(f"document.querySelector(\".plot[data-name='{name}'][data-model='{model}']\").data")


async def choose(tab: Tab, name: str, value: object) -> None:
    """Choose an option of a selector."""
    change = "node.dispatchEvent(new Event('change'))"
    await tab.run(f"(() => {{ const node = byId('{name}'); node.value = {json.dumps(str(value))}; {change}; }})()")


@pytest.fixture(scope="module")
def report() -> Report:
    return text_report(WORDS, models=2, heads=2)


def test_no_text_becomes_html(report: Report) -> None:
    page = render_page(report)
    # Plotly, data, matrices, and the script of the page
    assert page.count("<script") == page.count("</script>") == 4
    assert "evil.example" not in page
    assert "alert(" not in page
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    hostile = render_page(Report(**{**vars(report), "title": HOSTILE[-1]}))
    assert f"<title>{html.escape(HOSTILE[-1])}</title>" in hostile


def test_the_policy_allows_only_the_own_scripts(report: Report) -> None:
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', render_page(report))
    assert policy
    (scripts,) = re.findall(r"script-src ([^;]*)", policy[1])
    assert re.fullmatch(r"('sha256-[\w+/=]+' ?){2}", scripts)
    assert policy[1].startswith("default-src 'none';")


def test_weights_parents_and_hops_are_encoded() -> None:
    weights = torch.rand(5, 7).softmax(dim=-1).numpy()
    fine, coarse = MatrixStore(weights.size, 10**6), MatrixStore(10**9, 10**6)
    for store, error in ((fine, 2**-11), (coarse, 2**-7)):
        np.testing.assert_allclose(store.weights(weights).astype(float), weights, rtol=error)
    assert (fine.rounding, coarse.rounding) == ("0.05 %", "0.8 %")
    references = fine.add(fine.weights(weights))
    assert references == [{"type": "f2", "rows": 5, "columns": 7, "place": 0}]
    content = gzip.decompress(b64decode(fine.texts[0]))
    low, high = np.frombuffer(content, "u1").reshape(2, 5, 7).astype("u2")
    assert ((low | high << 8).view("f2") == fine.weights(weights)).all()
    assert encode_parents(np.array([[-1, 3]])).tolist() == [[NO_PARENT, 3]]
    assert encode_hops(np.array([[-1, 0, 300]])).tolist() == [[NO_PATH, 0, NO_PATH - 1]]
    assert planes(np.array([[1, 258]], dtype="<u2")) == bytes([1, 2, 0, 1])


def test_numbers_keep_seven_digits() -> None:
    assert rounded({"a": [1 / 3, 0.0, 12345678.9, None, 5, "x"]}) == {"a": [0.3333333, 0.0, 12345680.0, None, 5, "x"]}
    assert rounded([2 / 3], 5) == [0.66667]


def large_report(examples: int, n: int, layers: int, heads: int) -> Report:
    generator = torch.Generator().manual_seed(0)

    def model(stored: bool) -> ModelReport:
        reports = []
        for layer in range(layers):
            for head in [*range(heads), -1]:
                values = torch.rand(len(MEASURES), generator=generator).tolist()
                measures = dict(zip(MEASURES, values, strict=True))
                if not stored:
                    reports.append(HeadReport(f"layers.{layer}", head, measures))
                    continue
                weights = torch.softmax(2 * torch.randn(n, n, generator=generator), dim=-1)
                parents = torch.arange(n).int()[:, None].expand(n, n)
                points = torch.randn(n, 2, generator=generator)
                curve = torch.rand(n, generator=generator).tolist()
                reports.append(
                    HeadReport(f"layers.{layer}", head, measures, curve, curve, weights, parents, parents % 5, points)
                )
        return ModelReport("positive", 0.9, True, {"positive": 0.9, "negative": 0.1}, reports)

    words = [f"word{number}" for number in torch.randint(0, 5000, (n,), generator=generator).tolist()]
    parts = [
        ExampleReport(f"test {number}", words, "positive", [model(number == 0)], number == 0)
        for number in range(examples)
    ]
    info = ModelInfo(
        "large", "DotProduct()", "best.ckpt", {f"layers.{layer}": f"layer {layer + 1}" for layer in range(layers)}
    )
    return Report("large", "text", "texts", "0", n, 0, [info], parts, None, [], [])


def test_a_page_of_long_texts_stays_below_five_megabytes() -> None:
    report = large_report(100, 512, 3, 4)
    assert len(render_page(report).encode()) < 5_000_000
    data, _ = page_data(report)
    (first, *_), dropped = data["examples"], data["dropped"]
    stored = [head["head"] for head in first["models"][0]["heads"] if "weights" in head]
    # random weights do not compress: the page holds the means over heads first, and counts what it lacks
    assert stored.count(-1) == 3
    assert 0 < dropped < 15


@in_a_browser
def test_the_page_fits_desktop_and_phone_in_light_and_dark(report: Report, tmp_path: Path) -> None:
    async def actions(tab: Tab) -> dict[tuple[int, str], Any]:
        result = {}
        for width, height in ((1280, 900), (390, 844)):
            for scheme in ("light", "dark"):
                await tab.emulate(width, height, scheme)
                await tab.open((tmp_path / "index.html").as_uri())
                await drawn(tab, "grid")
                # head 0 is uniform and has no diffusion map
                await choose(tab, "head", 1)
                for name in ("weights", "lines", "points", "laplacian", "rollout", "ablation_nodes", "lengths_entropy"):
                    await drawn(tab, name)
                result[width, scheme] = await tab.run(
                    "[document.documentElement.scrollWidth <= innerWidth,"
                    " document.querySelector('.plot')._fullLayout.paper_bgcolor,"
                    " getComputedStyle(document.querySelector('section')).backgroundColor,"
                    " performance.getEntriesByName('drawn grid').length]"
                )
                assert tab.problems == []
        return result

    result = visit(tmp_path, report, actions)
    for (_, scheme), observed in result.items():
        paper = {"light": ("#ffffff", "rgb(255, 255, 255)"), "dark": ("#1a2029", "rgb(26, 32, 41)")}[scheme]
        assert observed == [True, *paper, 2]


@in_a_browser
def test_figures_agree_with_results_json_and_with_python(report: Report, tmp_path: Path) -> None:
    async def actions(tab: Tab) -> dict[str, Any]:
        names = ("grid", "weights", "mean", "hops", "points", "spectrum", "laplacian", "rollout", "ablation_edges")
        await choose(tab, "layer", SECOND)
        await choose(tab, "head", 1)
        traces = {name: await trace(tab, name, 0) for name in names}
        traces["second model"] = await trace(tab, "weights", 1)
        await drawn(tab, "spectrum")
        await tab.run(
            "var hovered; document.querySelector('.plot.spectrum')"
            ".on('plotly_hover', ({points}) => { hovered = points[0].y; }) && 0"
        )
        await tab.hover(".plot.spectrum .points path:nth-child(2)")
        await tab.wait("hovered !== undefined")
        traces["hovered"] = await tab.run("hovered")
        traces["numbers"] = await tab.run("[...document.querySelectorAll('#numbers tr')].map((row) => row.innerText)")
        return traces

    traces = visit(tmp_path, report, actions)
    results = to_json(report)
    head = next(
        head for head in results["examples"][0]["models"][0]["heads"] if (head["layer"], head["head"]) == (SECOND, 1)
    )
    assert traces["spectrum"][0]["y"] == pytest.approx(head["spectrum"], rel=5e-5, abs=1e-12)
    assert traces["laplacian"][0]["y"] == pytest.approx(head["laplacian"], rel=5e-5, abs=1e-12)
    assert traces["hovered"] == pytest.approx(head["spectrum"][1], rel=5e-5)
    assert f"{head['measures']['spectral_gap']:.3f}" in traces["numbers"][1]
    for name, drawing in {"weights": figures.weights, "hops": figures.hops}.items():
        expected = drawing(report, 0, 0, SECOND, 1)
        assert np.array(traces[name][0]["z"], dtype=float) == pytest.approx(expected.data[0].z, rel=1e-3, abs=FLOAT16)
        assert traces[name][0]["zmax"] == pytest.approx(expected.data[0].zmax, rel=1e-3)
    mean = figures.weights(report, 0, 0, SECOND, -1).data[0].z
    assert np.array(traces["mean"][0]["z"]) == pytest.approx(mean, rel=1e-3, abs=FLOAT16)
    other = figures.weights(report, 0, 1, SECOND, 1).data[0].z
    assert np.array(traces["second model"][0]["z"]) == pytest.approx(other, rel=1e-3, abs=FLOAT16)
    assert np.array(traces["rollout"][0]["z"]) == pytest.approx(
        figures.rollout(report).data[0].z, rel=1e-3, abs=FLOAT16
    )
    assert np.array(traces["grid"][0]["z"]) == pytest.approx(np.array(figures.grid(report).data[0].z), rel=1e-6)
    points = figures.diffusion_map(report, 0, 0, SECOND, 1).data
    for shown, part in zip(traces["points"], points, strict=True):
        assert shown["x"] == pytest.approx(list(part.x), rel=5e-5)
        assert shown["text"] == list(part.text)
    assert traces["ablation_edges"][1]["y"] == results["ablation"][0]["edges"]["accuracy"]


@in_a_browser
def test_clicks_choose_heads_and_tokens(report: Report, tmp_path: Path) -> None:
    routes = (
        "[...document.querySelectorAll('.route')]"
        ".map((row) => [...row.querySelectorAll('.token')].map((node) => node.textContent))"
    )

    async def actions(tab: Tab) -> dict[str, Any]:
        result = {}
        # three columns (heads 0 and 1, mean) and two rows (layers)
        await tab.click(".plot.grid[data-model='1'] .nsewdrag", 0.5, 0.75)
        await tab.wait("state.head === 1")
        result["head"] = await tab.run("[byId('layer').value, byId('head').value]")
        # figures above the tokens move them when they are drawn
        for model in range(2):
            for name in ("weights", "mean", "lines"):
                await drawn(tab, name, model)
        await tab.click("#tokens [data-token='1']")
        await tab.wait("state.from === 1")
        await tab.click("#tokens [data-token='9']")
        await tab.wait("document.querySelector('.route')")
        result["tokens"] = await tab.run(
            "[...document.querySelectorAll('#tokens .token')].map((node) => node.textContent)"
        )
        result["routes"] = await tab.run(routes)
        # row 2, column 5 of the hop matrix
        await drawn(tab, "hops", 1)
        await tab.click(".plot.hops[data-model='1'] .nsewdrag", 5.5 / len(WORDS), 2.5 / len(WORDS))
        await tab.wait("state.from === 2")
        result["pair"] = await tab.run("[state.from, state.to]")
        await drawn(tab, "lines")
        before = (await trace(tab, "lines"))[:8]
        await tab.run(
            "document.querySelector('.plot.lines')"
            ".emit('plotly_hover', {points: [{data: {meta: 'from'}, pointIndex: 3}]})"
        )
        result["lines"] = [before, (await trace(tab, "lines"))[:8]]
        await tab.click("h2 .help")
        result["tip"] = await tab.run("[byId('tip').matches(':popover-open'), byId('tip').textContent.slice(0, 10)]")
        return result

    result = visit(tmp_path, report, actions)
    assert result["head"] == [SECOND, "1"]
    # texts are shown literally and never interpreted
    assert result["tokens"] == WORDS
    for model, route in zip(report.examples[0].models, result["routes"], strict=True):
        head = next(head for head in model.heads if (head.layer, head.head) == (SECOND, 1))
        assert head.weights is not None
        assert route == [WORDS[token] for token in shortest_path(head.weights.double(), 1, 9)]
    assert result["pair"] == [2, 5]
    before, after = ([y for part in traces for y in part["y"][::3]] for traces in result["lines"])
    assert set(before) > {3}
    assert set(after) == {3}
    assert result["tip"] == [True, "The output"]


@in_a_browser
def test_tokens_are_shown_literally_in_figures(report: Report, tmp_path: Path) -> None:
    async def actions(tab: Tab) -> dict[str, Any]:
        result: dict[str, Any] = {}
        await choose(tab, "layer", SECOND)
        for name in ("weights", "lines", "points", "hops"):
            await drawn(tab, name)
        result["ticks"] = await tab.run(
            "[...document.querySelector('.plot.weights').querySelectorAll('.ytick text')]"
            ".map((node) => node.textContent)"
        )
        # row 5 is the link, column 1 is "plot"
        await tab.hover(".plot.weights .nsewdrag", 1.5 / len(WORDS), 5.5 / len(WORDS))
        await tab.wait("document.querySelector('.plot.weights .hovertext')")
        result["hover"] = await tab.run("document.querySelector('.plot.weights .hovertext').textContent")
        result["links"] = await tab.run(
            "document.querySelectorAll('.plot text a, .plot script, .plot text [style*=bold]').length"
        )
        # the same words without escaping
        await tab.run(
            "Plotly.newPlot(document.body.appendChild(element('div', {id: 'naive'})),"
            f" [{{x: [1], y: [1], mode: 'text', text: {json.dumps(HOSTILE[1:2])}}}]).then(() => 0)"
        )
        result["naive"] = await tab.run("document.querySelectorAll('#naive text a').length")
        return result

    result = visit(tmp_path, report, actions)
    assert result["naive"] == 1
    assert result["links"] == 0
    expected = [word if len(word) <= 16 else word[:15] + "…" for word in WORDS]
    assert set(result["ticks"]) <= set(expected)
    assert {"<b>bold</b>", '<a href="https:…', "&lt;"} & set(result["ticks"])
    head = report.examples[0].models[0].heads[3]
    assert (head.layer, head.head) == (SECOND, 0)
    assert head.weights is not None
    assert result["hover"].startswith('<a href="https:… → plot')
    assert float(result["hover"].split("weight")[1]) == pytest.approx(head.weights[5, 1].item(), rel=5e-3)


@in_a_browser
def test_examples_without_matrices_say_so_and_show_their_numbers(report: Report, tmp_path: Path) -> None:
    async def actions(tab: Tab) -> dict[str, Any]:
        await choose(tab, "example", 1)
        await tab.run("byId('notice').scrollIntoView()")
        await tab.wait("!byId('notice').hidden")
        await tab.wait("document.querySelector('.plot.weights.message')")
        return await tab.run(
            "({notice: byId('notice').textContent, option: byId('example').selectedOptions[0].textContent,"
            " weights: document.querySelector('.plot.weights').textContent,"
            " numbers: byId('numbers').querySelectorAll('tr')[1].innerText.split(/\\s+/)})"
        )

    result = visit(tmp_path, report, actions)
    assert result["option"].endswith("(numbers only)")
    assert result["notice"].startswith("The matrices of this example are not stored.")
    assert result["weights"] == result["notice"]
    head = report.examples[1].models[0].heads[0]
    assert f"{head.measures['entropy']:.3f}" in result["numbers"]


@in_a_browser
def test_figures_are_saved_and_follow_the_color_scheme(report: Report, tmp_path: Path) -> None:
    async def actions(tab: Tab) -> dict[str, Any]:
        await drawn(tab, "weights")
        result = {}
        for kind in ("png", "svg"):
            options = f"{{format: '{kind}', width: 300, height: 200}}"
            result[kind] = await tab.run(f"Plotly.toImage(document.querySelector('.plot.weights'), {options})")
        result["buttons"] = await tab.run(
            "[...document.querySelector('.plot.weights').querySelectorAll('.modebar-btn')]"
            ".map((node) => node.dataset.title)"
        )
        await tab.emulate(1280, 900, "dark")
        await tab.wait("document.querySelector('.plot.weights')._fullLayout.paper_bgcolor === '#1a2029'")
        return result

    result = visit(tmp_path, report, actions)
    assert result["png"].startswith("data:image/png;base64,")
    assert "svg" in result["svg"][:40]
    assert [title for title in result["buttons"] if "Save" in title] == ["Save as PNG", "Save as SVG"]
    # Plotly's button that uploads a figure is not there
    assert len(result["buttons"]) == 5


@in_a_browser
def test_a_translation_opens_on_cross_attention(tmp_path: Path) -> None:
    report = translation_report()

    async def actions(tab: Tab) -> Any:
        opened = await tab.run(
            "[byId('example').value, byId('layer').value, byId('layer').selectedOptions[0].textContent]"
        )
        weights = await trace(tab, "weights")
        hidden = await tab.run("byId('paths').hidden")
        await choose(tab, "example", 0)
        return opened, weights, hidden, await tab.run("[byId('layer').value, byId('paths').hidden]")

    opened, (weights,), hidden, encoder = visit(tmp_path, report, actions)
    assert opened == ["1", CROSS_LAYER, "decoder layer 1 (cross)"]
    assert np.array(weights["z"]) == pytest.approx(
        figures.weights(report, 1, 0, CROSS_LAYER, 0).data[0].z, rel=1e-3, abs=FLOAT16
    )
    assert hidden
    assert encoder == [FIRST, False]


@in_a_browser
def test_an_image_is_shown_bare_and_below_the_weights(tmp_path: Path) -> None:
    report = image_report()

    async def actions(tab: Tab) -> Any:
        await choose(tab, "head", 1)
        before = await trace(tab, "overlay")
        images = await tab.run("[byId('bare').src, document.querySelector('.plot.overlay').layout.images[0].source]")
        await tab.click(".plot.overlay .nsewdrag", 0.9, 0.1)
        await tab.wait("state.from !== null")
        return (
            before,
            images,
            await tab.run("byId('patch').textContent"),
            await trace(tab, "overlay"),
            await trace(tab, "overlay_hops"),
        )

    (before,), images, name, (after,), (hops,) = visit(tmp_path, report, actions)
    assert images[0] == images[1]
    assert images[0].startswith("data:image/png;base64,")
    assert name == "patch 0,3"
    for shown, patch, value in ((before, 0, "weights"), (after, 4, "weights"), (hops, 4, "hops")):
        expected = figures.overlay(report, head=1, patch=patch, value=value)
        assert np.array(shown["z"], dtype=float) == pytest.approx(expected.data[0].z, rel=1e-3, abs=FLOAT16)


@in_a_browser
def test_a_field_shows_the_weights_of_a_query(tmp_path: Path) -> None:
    report = field_report()

    async def actions(tab: Tab) -> Any:
        first = await trace(tab, "field")
        await tab.run(
            "document.querySelector('.plot.field')"
            ".emit('plotly_click', {points: [{data: {meta: 'queries'}, pointIndex: 2}]})"
        )
        hidden = await tab.run("[...document.querySelectorAll('[data-kind][hidden]')].map((node) => node.dataset.kind)")
        return first, await trace(tab, "field"), hidden, await trace(tab, "lengths_effective_neighbors")

    first, third, hidden, lengths = visit(tmp_path, report, actions)
    for shown, query in ((first, 0), (third, 2)):
        expected = figures.field_map(report, query=query).data
        assert shown[0]["marker"]["color"] == pytest.approx(list(expected[0].marker.color), rel=1e-3, abs=FLOAT16)
        assert shown[1]["marker"]["size"] == list(expected[1].marker.size)
    assert {"output", "image", "self", "rollout", "tokens"} <= set(hidden)
    assert lengths[1]["y"] == [1.5, 2.0]
