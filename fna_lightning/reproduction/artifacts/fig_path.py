"""The cheapest path between two related tokens."""

from collections import defaultdict

from fna_lightning.graph import shortest_path
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.artifacts.walks import first_cells, tied_cells
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.families import ATTENTIONS


def related(words: list[str]) -> tuple[int, int]:
    """Return the first and last place of the longest word that comes twice; of the text itself if none does."""
    places: dict[str, list[int]] = defaultdict(list)
    for place, word in enumerate(words):
        places[word.strip().lower()].append(place)
    twice = [word for word in places if len(places[word]) > 1]
    chosen = places[max(twice, key=len)] if twice else [0, len(words) - 1]
    return chosen[0], chosen[-1]


def run(bench: Bench) -> Finding:
    """Write the path down for every attention."""
    from fna_lightning.reproduction.graphs import longest

    finding, lines = Finding(), []
    for name, (cell, *_) in tied_cells(bench.scale).items():
        subject = bench.subject(cell)
        if subject is None:
            finding.notes.append(f"not run: {bench.failure([cell])}")
            continue
        example = longest(bench.texts(subject))
        (found,) = subject.maps(example.input).values()
        i, j = related(example.words)
        path = shortest_path(found.weights[0, 0].double(), i, j)
        shown = [f"{example.words[place].strip()} ({place})" for place in path]
        lines.append([ATTENTIONS[name], str(len(path) - 1) if path else "none", " > ".join(shown)])
    finding.tables.append(Table("cheapest path between two places of one word", ["", "hops", "path"], lines))
    finding.notes.append(
        "The paper shows two related tokens of a review of its choice, without numbers. Here: the first and the last "
        "place of the longest word that comes twice in the longest text studied; numbers in brackets are places."
    )
    return finding


PIECE = Piece(
    "fig-path", "Path between two related tokens", "FNA joins them in fewer hops than LA and DP.", run, first_cells
)
