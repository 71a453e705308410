"""What a piece of the reproduction is: a table or figure of the paper, the runs it needs and what came of it."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.scales import Scale

if TYPE_CHECKING:
    from fna_lightning.reproduction.context import Bench

# a published number, or the two ends of a published range
Published = float | tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One number beside the paper's.

    Attributes:
        label: what the number is.
        ours: our value, the mean over seeds; None if it was not measured, then ``reason`` says why.
        paper: the paper's value or range; None for a number of which the paper says nothing.
        half_width: of the 95 % interval over seeds; None if there is one seed or none are needed.
        seeds: how many there were; 0 for a computation without chance.
        tolerance: how far the paper's value is uncertain itself (read off a figure, rounded), or how exact theory is.
        comparable: whether the number was made under conditions in which the paper's value should come out.
        reason: why it is not comparable, or not there.
        digits: after the point, on the page.
    """

    label: str
    ours: float | None = None
    paper: Published | None = None
    half_width: float | None = None
    seeds: int = 0
    tolerance: float = 0.0
    comparable: bool = True
    reason: str = ""
    digits: int = 2


@dataclass(frozen=True)
class Claim:
    """An order the paper asserts: ``better`` above ``worse``, asked of the seeds both have.

    Attributes:
        label: the claim in words.
        difference: mean over seeds of ours, better minus worse; None if it was not measured.
        half_width: of its 95 % interval; None for a single seed.
        seeds: how many there were.
        comparable: whether the conditions are the claim's.
        reason: why not, or why there is no number.
        published: the paper's difference, if it gives one.
    """

    label: str
    difference: float | None = None
    half_width: float | None = None
    seeds: int = 0
    comparable: bool = True
    reason: str = ""
    published: float | None = None


@dataclass(frozen=True)
class Table:
    """Numbers that have no counterpart in the paper."""

    title: str
    columns: list[str]
    lines: list[list[str]]


@dataclass
class Finding:
    """What a piece came to.

    Attributes:
        rows: numbers beside the paper's.
        claims: orders the paper asserts.
        tables: further numbers.
        figures: files in the folder of the piece, with their captions.
        notes: sentences under the tables.
        not_run: why there is nothing, if there is nothing.
    """

    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_run: str = ""

    def state(self) -> dict[str, Any]:
        """Return it as plain values."""
        return asdict(self)

    @classmethod
    def of(cls, state: dict[str, Any]) -> "Finding":
        """Return what ``state`` returned, also after a journey through JSON."""
        rows = [Row(**{**row, "paper": _published(row["paper"])}) for row in state["rows"]]
        claims = [Claim(**claim) for claim in state["claims"]]
        tables = [Table(**table) for table in state["tables"]]
        return cls(rows, claims, tables, dict(state["figures"]), list(state["notes"]), state["not_run"])


def no_cells(_: Scale) -> list[Cell]:
    """Return the runs of a piece that needs none."""
    return []


def always(_: Scale) -> str:
    """Return the reason not to run of a piece that always can."""
    return ""


@dataclass(frozen=True)
class Piece:
    """A table or figure of the paper.

    Attributes:
        name: on the command line.
        title: on the page.
        says: what the paper says or shows, in a sentence.
        run: makes the finding.
        cells: the runs it looks at.
        refusal: why it cannot run at a scale; "" if it can.
    """

    name: str
    title: str
    says: str
    run: "Callable[[Bench], Finding]"
    cells: Callable[[Scale], list[Cell]] = no_cells
    refusal: Callable[[Scale], str] = always


def _published(value: Any) -> Published | None:
    return (float(value[0]), float(value[1])) if isinstance(value, list | tuple) else value
