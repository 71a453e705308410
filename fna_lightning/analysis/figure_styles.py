"""Style of the Plotly figures: colors, templates for light and dark pages, and empty figures of each kind.

The functions of ``figures`` fill these empty figures with data; the script of the HTML page fills the same figures.
"""

from html import escape
from typing import Any

import plotly.graph_objects as go

# the palette of Okabe and Ito, which color-blind readers can tell apart; its yellow and black are hard to see
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
SCALE = "Viridis"
# opacities of the lines between tokens: a line has the first that is not below weight / largest weight
OPACITIES = (0.125, 0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)
# most lines between tokens; the weakest are left out
MAX_LINES = 1500
LONGEST_LABEL = 16

# where the image of an overlay lies; its size is the number of patches in a row
IMAGE = {"x": -0.5, "y": -0.5, "xref": "x", "yref": "y", "yanchor": "top", "sizing": "stretch", "layer": "below"}

_PAIR = "%{y} → %{x}<br>"
_TOKEN = "%{text}<extra></extra>"
_THEMES = {
    False: {"ink": "#1c2430", "soft": "#5b6675", "line": "#dde3ea", "paper": "#ffffff"},
    True: {"ink": "#e6eaf0", "soft": "#a3adba", "line": "#363f4d", "paper": "#1a2029"},
}


def literal(text: str) -> str:
    """Return a text that Plotly shows as it is: Plotly interprets some HTML tags and entities in labels."""
    return escape(text, quote=False)


def tick_label(word: str) -> str:
    """Return the label of a token at an axis; long tokens are shortened."""
    return literal(word if len(word) <= LONGEST_LABEL else word[: LONGEST_LABEL - 1] + "…")


def theme(*, dark: bool = False) -> go.layout.Template:
    """Return the Plotly template of the figures."""
    colors = _THEMES[dark]
    axis = {"gridcolor": colors["line"], "linecolor": colors["line"], "zeroline": False, "automargin": True}
    axis |= {"title": {"font": {"size": 12, "color": colors["soft"]}, "standoff": 6}, "tickfont": {"size": 11}}
    heatmap = go.Heatmap(colorscale=SCALE, colorbar=_color_bar())
    scatter = go.Scatter(marker={"colorscale": SCALE, "colorbar": _color_bar()})
    layout = go.Layout(
        font={"family": "system-ui, 'Segoe UI', Roboto, Arial, sans-serif", "size": 12, "color": colors["ink"]},
        paper_bgcolor=colors["paper"],
        plot_bgcolor=colors["paper"],
        colorway=COLORS,
        xaxis=axis,
        yaxis=axis,
        margin={"l": 50, "r": 10, "t": 26, "b": 44},
        legend={"orientation": "h", "x": 0, "y": -0.2, "yanchor": "top", "font": {"size": 11}},
        hoverlabel={
            "bgcolor": colors["ink"],
            "font": {"color": colors["paper"], "size": 12},
            "bordercolor": colors["ink"],
        },
        modebar={"bgcolor": "rgba(0,0,0,0)", "color": colors["soft"], "activecolor": colors["ink"]},
        dragmode="zoom",
        hovermode="closest",
    )
    return go.layout.Template(layout=layout, data={"heatmap": [heatmap], "scatter": [scatter]})


def matrix_figure(value: str, *, rows: str = "from token", columns: str = "to token") -> go.Figure:
    """Return an empty matrix with a token label at each row and column.

    Token positions are the categories of the axes, because a token can occur twice; ``labelalias`` shows the tokens.
    """
    trace = go.Heatmap(
        z=[], zmin=0, zmax=1, hovertemplate=_PAIR + value + " %{z:.3g}<extra></extra>", hoverongaps=False
    )
    trace.colorbar.title.text = value
    figure = _figure(trace)
    figure.update_xaxes(type="category", tickangle=-60, showgrid=False, title_text=columns)
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False, title_text=rows)
    return figure


def hops_figure() -> go.Figure:
    """Return an empty hop matrix; pairs without a path are left blank."""
    figure = matrix_figure("hops")
    figure.update_traces(hovertemplate=_PAIR + "%{z} hops<extra></extra>", hoverongaps=False)
    figure.data[0].colorbar.dtick = 1
    return figure


def grid_figure() -> go.Figure:
    """Return an empty overview: one row for each layer, one column for each head."""
    trace = go.Heatmap(
        z=[], xgap=2, ygap=2, texttemplate="%{text}", hovertemplate="%{y}, %{x}: %{z:.4g}<extra></extra>"
    )
    trace.colorbar.title.text = ""
    figure = _figure(trace)
    figure.update_xaxes(type="category", showgrid=False, title_text="head")
    figure.update_yaxes(type="category", autorange="reversed", showgrid=False)
    return figure


def lines_figure() -> go.Figure:
    """Return empty token-to-token lines: one trace for each opacity, then the tokens left and right."""
    lines = [
        go.Scatter(x=[], y=[], mode="lines", opacity=opacity, line={"width": 1.6}, hoverinfo="skip")
        for opacity in OPACITIES
    ]
    sides = [
        go.Scatter(x=[x], y=[], mode="text", text=[], textposition=place, meta=side, hovertemplate=_TOKEN)
        for side, x, place in (("from", -0.02, "middle left"), ("to", 1.02, "middle right"))
    ]
    figure = _figure(*lines, *sides)
    figure.update_layout(showlegend=False, margin={"l": 4, "r": 4, "t": 4, "b": 4}, dragmode=False, hoverdistance=30)
    figure.update_layout(modebar_orientation="v")
    figure.update_xaxes(range=[-0.6, 1.6], visible=False, fixedrange=True)
    figure.update_yaxes(visible=False, fixedrange=True)
    return figure


def points_figure() -> go.Figure:
    """Return an empty diffusion map; the color of a point is the position of its token."""
    marker = {"size": 9, "opacity": 0.8, "color": [], "showscale": True, "colorbar": {"title": {"text": "position"}}}
    # The ends of the color scale would disappear on a dark or a white background.
    marker["line"] = {"width": 1, "color": "#888888"}
    tokens = go.Scatter(x=[], y=[], mode="markers", marker=marker, text=[], hovertemplate=_TOKEN)
    labels = go.Scatter(x=[], y=[], mode="text", text=[], textposition="top center", hoverinfo="skip", cliponaxis=False)
    figure = _figure(tokens, labels)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="coordinate 1")
    figure.update_yaxes(title_text="coordinate 2")
    return figure


def curves_figure(x: str, y: str, *, unit_interval: bool = False) -> go.Figure:
    """Return empty curves, one for each model."""
    figure = _figure()
    figure.update_xaxes(title_text=x)
    figure.update_yaxes(title_text=y, range=[-0.02, 1.05] if unit_interval else None, rangemode="tozero")
    return figure


def curve(label: str, color: str, x: list[Any], y: list[Any]) -> go.Scatter:
    """Return the curve of one model."""
    line, marker = {"color": color, "width": 2}, {"size": 5}
    hover = "%{fullData.name}<br>%{x}: %{y:.4g}<extra></extra>"
    return go.Scatter(
        x=x, y=y, name=literal(label), mode="lines+markers", line=line, marker=marker, hovertemplate=hover
    )


def band(color: str, x: list[Any], low: list[Any], high: list[Any]) -> go.Scatter:
    """Return the interval around a curve."""
    red, green, blue = (int(color[place : place + 2], 16) for place in (1, 3, 5))
    fill, none = f"rgba({red},{green},{blue},0.16)", {"width": 0}
    outline = {"x": [*x, *x[::-1]], "y": [*high, *low[::-1]]}
    return go.Scatter(
        **outline, fill="toself", fillcolor=fill, line=none, mode="lines", hoverinfo="skip", showlegend=False
    )


def overlay_figure(value: str) -> go.Figure:
    """Return an empty map of patches; the image is put below it."""
    trace = go.Heatmap(
        z=[],
        zmin=0,
        zmax=1,
        opacity=0.6,
        hovertemplate="row %{y}, column %{x}<br>" + value + " %{z:.3g}<extra></extra>",
    )
    trace.colorbar.title.text = value
    trace.colorbar.dtick = 1 if value == "hops" else None
    figure = _figure(trace)
    figure.update_layout(margin={"l": 4, "r": 4, "t": 26, "b": 4})
    figure.update_xaxes(visible=False, constrain="domain")
    figure.update_yaxes(visible=False, constrain="domain", autorange="reversed", scaleanchor="x")
    return figure


def field_figure() -> go.Figure:
    """Return an empty map of a field: its points colored by weight, and the queries."""
    marker = {"size": 7, "color": [], "showscale": True, "colorbar": {"title": {"text": "weight"}}}
    points = go.Scatter(x=[], y=[], mode="markers", marker=marker, text=[])
    points.hovertemplate = "%{text}<br>weight %{marker.color:.3g}<extra></extra>"
    cross = {"symbol": "x", "size": 11, "color": COLORS[1], "line": {"width": 1, "color": "#ffffff"}}
    queries = go.Scatter(x=[], y=[], mode="markers", marker=cross, text=[], meta="queries")
    queries.hovertemplate = "%{text}: click to choose<extra></extra>"
    figure = _figure(points, queries)
    figure.update_layout(showlegend=False)
    figure.update_xaxes(title_text="x")
    figure.update_yaxes(title_text="y", scaleanchor="x")
    return figure


def empty_figures() -> dict[str, go.Figure]:
    """Return an empty figure of each kind that depends on the selected example, layer or head."""
    return {
        "grid": grid_figure(),
        "weights": matrix_figure("weight"),
        "rollout": matrix_figure("share"),
        "hops": hops_figure(),
        "lines": lines_figure(),
        "points": points_figure(),
        "spectrum": curves_figure("eigenvalue", "modulus", unit_interval=True),
        "laplacian": curves_figure("eigenvalue", "value"),
        "overlay": overlay_figure("weight"),
        "overlay_hops": overlay_figure("hops"),
        "field": field_figure(),
    }


def _color_bar() -> dict[str, Any]:
    title = {"side": "right", "font": {"size": 11}}
    return {"thickness": 10, "outlinewidth": 0, "tickfont": {"size": 10}, "title": title}


def _figure(*traces: Any) -> go.Figure:
    return go.Figure(data=list(traces), layout={"template": theme()})
