"""Verdicts: one rule for all rows and one for all claims."""

import math

from fna_lightning.reproduction.artifact import Claim, Row

REPRODUCED, DIFFERS, NOT_COMPARABLE, NOT_RUN = "reproduced", "differs", "not comparable", "not run"
VERDICTS = (REPRODUCED, DIFFERS, NOT_COMPARABLE, NOT_RUN)

RULE = (
    "A number is reproduced if it lies within the paper's value or range, widened by our 95 % Student interval over "
    "seeds and by the stated tolerance (the precision with which the paper's value can be read, or the required "
    "accuracy of a theoretical value); otherwise it differs. A claim that one attention is better is reproduced if the "
    "95 % interval of the difference, paired by seed, lies above 0; otherwise it differs. Not comparable: other data "
    "or shorter training than in the paper, no value in the paper, or a single seed of a random result. Not run: there "
    "is no number, for the stated reason."
)


def verdict(entry: Row | Claim) -> str:
    """Return the verdict of a row or a claim."""
    return _row_verdict(entry) if isinstance(entry, Row) else _claim_verdict(entry)


def difference(row: Row) -> float | None:
    """Return our value minus the paper's; for a range, 0 inside it and the distance to the nearer end outside."""
    if row.ours is None or row.paper is None:
        return None
    low, high = row.paper if isinstance(row.paper, tuple) else (row.paper, row.paper)
    return max(row.ours - high, 0.0) + min(row.ours - low, 0.0)


def _row_verdict(row: Row) -> str:
    if row.ours is None or math.isnan(row.ours):
        return NOT_RUN
    distance = difference(row)
    if distance is None or not row.comparable or row.seeds == 1:
        return NOT_COMPARABLE
    # The factor makes a difference of 0.03 meet a tolerance of 0.03 despite binary rounding.
    allowed = row.tolerance + (row.half_width or 0.0)
    return REPRODUCED if abs(distance) <= allowed * (1 + 1e-9) else DIFFERS


def _claim_verdict(claim: Claim) -> str:
    if claim.difference is None or math.isnan(claim.difference):
        return NOT_RUN
    if not claim.comparable or claim.half_width is None:
        return NOT_COMPARABLE
    return REPRODUCED if claim.difference - claim.half_width > 0.0 else DIFFERS
