"""When a number counts as reproduced: one rule for all rows, one for all claims."""

import math

from fna_lightning.reproduction.artifact import Claim, Row

REPRODUCED, DIFFERS, NOT_COMPARABLE, NOT_RUN = "reproduced", "differs", "not comparable", "not run"
VERDICTS = (REPRODUCED, DIFFERS, NOT_COMPARABLE, NOT_RUN)

RULE = (
    "A number is reproduced if it lies within the paper's value (or range), widened by our 95 % interval over seeds "
    "(Student) and by the stated tolerance: how exactly the paper's value can be read, or how exact theory must be. "
    "Otherwise it differs. A claim that one attention is better is reproduced if the 95 % interval of the difference, "
    "paired over seeds, lies above 0; otherwise it differs. Not comparable: other data or shorter training than the "
    "paper's, no value in the paper, or one seed where chance decides. Not run: no number, for the reason given."
)


def verdict(one: Row | Claim) -> str:
    """Return the verdict of a row or a claim."""
    return _of_row(one) if isinstance(one, Row) else _of_claim(one)


def difference(row: Row) -> float | None:
    """Return ours minus the paper's; 0 within a range, else the distance to its nearer end."""
    if row.ours is None or row.paper is None:
        return None
    low, high = row.paper if isinstance(row.paper, tuple) else (row.paper, row.paper)
    return max(row.ours - high, 0.0) + min(row.ours - low, 0.0)


def _of_row(row: Row) -> str:
    if row.ours is None or math.isnan(row.ours):
        return NOT_RUN
    apart = difference(row)
    if apart is None or not row.comparable or row.seeds == 1:
        return NOT_COMPARABLE
    # a tolerance of 0.03 is met by 0.03, whatever binary digits make of it
    allowed = row.tolerance + (row.half_width or 0.0)
    return REPRODUCED if abs(apart) <= allowed * (1 + 1e-9) else DIFFERS


def _of_claim(claim: Claim) -> str:
    if claim.difference is None or math.isnan(claim.difference):
        return NOT_RUN
    if not claim.comparable or claim.half_width is None:
        return NOT_COMPARABLE
    return REPRODUCED if claim.difference - claim.half_width > 0.0 else DIFFERS
