"""IMDb accuracy by width and depth: one head, orthogonal projections, tied and untied."""

from matplotlib.axes import Axes

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.artifact import Artifact, Result, Row
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import curve, draw_rows, legend, panels
from fna_lightning.reproduction.families import ATTENTIONS, small_cells
from fna_lightning.reproduction.paper import paper_values
from fna_lightning.reproduction.scales import Scale


def setting(scale: Scale, name: str, tied: bool, dim: int, depth: int) -> list[Cell]:
    """Return the cells of one setting; uniform attention has no queries to tie."""
    return small_cells(scale, name, tied=tied and name != "uniform", dim=dim, depth=depth)


def cells(scale: Scale) -> list[Cell]:
    """Return the cells of every attention, width and depth."""
    return [
        cell
        for depth in scale.sweep.depths
        for dim in scale.sweep.dims
        for tied in (False, True)
        for name in ATTENTIONS
        for cell in setting(scale, name, tied, dim, depth)
    ]


def run(context: Context) -> Result:
    """Compare the grid with the paper's figure."""
    result = Result()
    figure, axes = panels(2, 6.0)
    for panel, tied in zip(axes, (False, True), strict=True):
        rows = _rows(context, tied)
        # Uniform attention has no queries to tie, so its row is reported once.
        result.rows += [row for (name, _, _), row in rows.items() if not (tied and name == "uniform")]
        _draw(panel, context.scale, rows)
        panel.set_title(_title(tied))
    result.figures[context.save(figure, "grid")] = "Test accuracy; black bars: the paper, read off its figure."
    for tied in (False, True):
        published = paper_values()["grid"]["tied" if tied else "untied"]
        for better, worse in (("fna", "la"), ("fna", "dp"), ("la", "dp"), ("fna", "uniform")):
            gap = published[better][0] - published[worse][0] if worse in published else None
            worse_name = worse.upper() if worse != "uniform" else worse
            result.claims.append(
                context.claim(
                    f"{better.upper()} above {worse_name}, {_title(tied)}, d = 8",
                    setting(context.scale, better, tied, 8, 1),
                    setting(context.scale, worse, tied, 8, 1),
                    published=gap,
                )
            )
    result.notes.append("Uniform attention is our control; the paper has none.")
    return result


def _title(tied: bool) -> str:
    return "Q = K" if tied else "Q != K"


def _rows(context: Context, tied: bool) -> dict[tuple[str, int, int], Row]:
    """Return (attention, depth, width) -> row; the paper gives values for one layer only."""
    grid = paper_values()["grid"]
    published = grid["tied" if tied else "untied"]
    rows = {}
    for depth in context.scale.sweep.depths:
        for name in ATTENTIONS:
            for dim in context.scale.sweep.dims:
                paper = published[name][grid["dims"].index(dim)] if depth == 1 and name in published else None
                label = f"{ATTENTIONS[name].split()[0]}, {_title(tied)}, d = {dim}" + f", {depth} layers" * (depth > 1)
                setting_cells = setting(context.scale, name, tied, dim, depth)
                rows[name, depth, dim] = context.row(label, setting_cells, paper, tolerance=grid["tolerance"])
    return rows


def _draw(panel: Axes, scale: Scale, rows: dict[tuple[str, int, int], Row]) -> None:
    """Draw the rows of a single width side by side, or one curve over several widths."""
    if len(scale.sweep.dims) == 1:
        draw_rows(panel, list(rows.values()), [name for name, _, _ in rows], "accuracy (%)")
        return
    for depth in scale.sweep.depths:
        for name in ATTENTIONS:
            points = [(dim, row.ours) for dim in scale.sweep.dims if (row := rows[name, depth, dim]).ours is not None]
            if len(points) > 1:
                widths, values = zip(*points, strict=True)
                label = f"{name}, {depth} layer" + "s" * (depth > 1)
                curve(panel, name, widths, values, label, dashed=depth > 1)
    panel.set(xlabel="d", ylabel="accuracy (%)")
    panel.set_xscale("log", base=2)
    legend(panel, 7)


ARTIFACT = Artifact(
    "fig-grid",
    "IMDb by width and depth",
    "One layer and one head of width 8 reach 83 % with FNA, 78 % with LA and 74 % with DP.",
    run,
    cells,
)
