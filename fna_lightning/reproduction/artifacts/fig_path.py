"""Shortest path between two related tokens."""

from collections import defaultdict

from fna_lightning.graph import shortest_path
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.families import ATTENTIONS, first_tied_cells, tied_cells


def related_positions(words: list[str]) -> tuple[int, int]:
    """Return the first and last position of the longest repeated word; of the whole text if no word is repeated."""
    positions: dict[str, list[int]] = defaultdict(list)
    for position, word in enumerate(words):
        positions[word.strip().lower()].append(position)
    repeated = [word for word in positions if len(positions[word]) > 1]
    chosen = positions[max(repeated, key=len)] if repeated else [0, len(words) - 1]
    return chosen[0], chosen[-1]


def run(context: Context) -> Result:
    """Return the path of every attention."""
    from fna_lightning.reproduction.graphs import longest

    result, lines = Result(), []
    for name, (cell, *_) in tied_cells(context.scale).items():
        model = context.load_model(cell)
        if model is None:
            result.notes.append(f"not run: {context.missing_reason([cell])}")
            continue
        example = longest(context.texts(model))
        (layer_map,) = model.maps(example.input).values()
        first, last = related_positions(example.words)
        path = shortest_path(layer_map.weights[0, 0].double(), first, last)
        words = [f"{example.words[position].strip()} ({position})" for position in path]
        lines.append([ATTENTIONS[name], str(len(path) - 1) if path else "none", " > ".join(words)])
    result.tables.append(Table("shortest path between two occurrences of one word", ["", "hops", "path"], lines))
    result.notes.append(
        "The paper shows two related tokens of a review of its choice, without numbers. Here: the first and the last "
        "occurrence of the longest repeated word in the longest text; the numbers in parentheses are positions."
    )
    return result


ARTIFACT = Artifact(
    "fig-path",
    "Path between two related tokens",
    "FNA connects them in fewer hops than LA and DP.",
    run,
    first_tied_cells,
)
