"""Types of the reproduction: an artifact (a table or figure of the paper) and its result."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from fna_lightning.experiments.grid import Cell
from fna_lightning.reproduction.scales import Scale

if TYPE_CHECKING:
    from fna_lightning.reproduction.context import Context

# a published number, or the two ends of a published range
Published = float | tuple[float, float]


@dataclass(frozen=True)
class Row:
    """One number beside the paper's.

    Attributes:
        label: what the number is.
        ours: our value, the mean over seeds; None if it was not measured.
        paper: the paper's value or range; None if the paper gives none.
        half_width: half the width of the 95 % interval over seeds; None for fewer than two seeds.
        seeds: number of seeds; 0 for a deterministic computation.
        tolerance: uncertainty of the paper's value (read off a figure, rounded), or the required accuracy of theory.
        comparable: whether the conditions are those under which the paper's value was obtained.
        reason: why the number is not comparable or not available.
        digits: digits after the decimal point in the report.
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
    """A claim of the paper that one attention is better than another, tested on paired seeds.

    Attributes:
        label: the claim in words.
        difference: mean over seeds of our better minus our worse value; None if it was not measured.
        half_width: half the width of its 95 % interval; None for a single seed.
        seeds: number of paired seeds.
        comparable: whether the conditions are those of the paper's claim.
        reason: why the claim is not comparable, or why there is no number.
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
    """Further numbers, without a counterpart in the paper."""

    title: str
    columns: list[str]
    lines: list[list[str]]


@dataclass
class Result:
    """Result of an artifact.

    Attributes:
        rows: numbers beside the paper's.
        claims: claims of the paper.
        tables: further numbers.
        figures: file name in the folder of the artifact -> caption.
        notes: sentences below the tables.
        not_run: why there is no result; empty if there is one.
    """

    rows: list[Row] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    figures: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    not_run: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the result as plain values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "Result":
        """Return the result whose ``to_dict``, possibly stored as JSON, is ``values``."""
        rows = [Row(**{**row, "paper": _published(row["paper"])}) for row in values["rows"]]
        claims = [Claim(**claim) for claim in values["claims"]]
        tables = [Table(**table) for table in values["tables"]]
        return cls(rows, claims, tables, dict(values["figures"]), list(values["notes"]), values["not_run"])


def no_cells(_: Scale) -> list[Cell]:
    """Return the runs of an artifact that needs none."""
    return []


def never_skip(_: Scale) -> str:
    """Return the skip reason of an artifact that runs at every scale."""
    return ""


@dataclass(frozen=True)
class Artifact:
    """A table or figure of the paper.

    Attributes:
        name: name on the command line.
        title: heading in the report.
        summary: what the paper states or shows, in one sentence.
        run: computes the result.
        cells: returns the training runs the artifact needs at a scale.
        skip_reason: returns why the artifact cannot run at a scale; empty if it can.
        size: returns what the artifact trains at a scale, if that is not described by ``Scale.summary``.
        records: whether the results of its runs are enough without their checkpoints, so that records replace runs.
    """

    name: str
    title: str
    summary: str
    run: "Callable[[Context], Result]"
    cells: Callable[[Scale], list[Cell]] = no_cells
    skip_reason: Callable[[Scale], str] = never_skip
    size: Callable[[Scale], str] | None = None
    records: bool = False


def _published(value: Any) -> Published | None:
    return (float(value[0]), float(value[1])) if isinstance(value, list | tuple) else value
