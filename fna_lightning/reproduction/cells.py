"""The tables of the page as texts, the same in HTML and in Markdown."""

from typing import Any

ROW_COLUMNS = ["", "paper or theory", "ours", "± 95 %", "difference", "seeds", "tolerance", "verdict"]
CLAIM_COLUMNS = ["claim", "paper", "our difference", "± 95 %", "seeds", "verdict"]
REGISTER_COLUMNS = {
    "what": "",
    "paper": "the paper's text",
    "code": "the authors' code",
    "ours": "this library",
    "changes": "what it changes",
}


def row_texts(row: dict[str, Any]) -> list[str]:
    """Return one line of the table of numbers."""
    digits = row["digits"]
    said = row["paper"]
    paper = (
        " ... ".join(number(one, digits) for one in said) if isinstance(said, list | tuple) else number(said, digits)
    )
    return [
        row["label"],
        paper,
        number(row["ours"], digits),
        number(row["half_width"], digits),
        number(row["difference"], digits, sign="+"),
        str(row["seeds"]) if row["seeds"] else "",
        f"{row['tolerance']:g}" if row["tolerance"] else "",
        verdict_text(row),
    ]


def claim_texts(claim: dict[str, Any]) -> list[str]:
    """Return one line of the table of claims."""
    return [
        claim["label"],
        number(claim["published"], 2, sign="+"),
        number(claim["difference"], 2, sign="+"),
        number(claim["half_width"], 2),
        str(claim["seeds"]) if claim["seeds"] else "",
        verdict_text(claim),
    ]


def verdict_text(one: dict[str, Any]) -> str:
    """Return the verdict with its reason."""
    return f"{one['verdict']}: {one['reason']}" if one["reason"] else str(one["verdict"])


def number(value: float | None, digits: int, sign: str = "") -> str:
    """Return a number for people; what would show as 0 and is not, with an exponent."""
    if value is None:
        return ""
    if digits > 6:
        return f"{value:{sign}.1e}"
    return f"{value:{sign}.{digits}f}"
