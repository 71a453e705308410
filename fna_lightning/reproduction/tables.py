"""Text of the report's tables, shared by HTML and Markdown."""

from typing import Any

ROW_COLUMNS = ["", "paper or theory", "ours", "± 95 %", "difference", "seeds", "tolerance", "verdict"]
CLAIM_COLUMNS = ["claim", "paper", "our difference", "± 95 %", "seeds", "verdict"]
# key in deviations.yaml: heading
DEVIATION_COLUMNS = {
    "topic": "",
    "paper": "the paper's text",
    "code": "the authors' code",
    "ours": "this library",
    "effect": "effect",
}


def row_texts(row: dict[str, Any]) -> list[str]:
    """Return one line of the table of numbers."""
    digits, paper = row["digits"], row["paper"]
    ends = paper if isinstance(paper, list | tuple) else [paper]
    return [
        row["label"],
        " ... ".join(number(end, digits) for end in ends),
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


def verdict_text(entry: dict[str, Any]) -> str:
    """Return the verdict of a row or claim with its reason."""
    return f"{entry['verdict']}: {entry['reason']}" if entry["reason"] else str(entry["verdict"])


def number(value: float | None, digits: int, sign: str = "") -> str:
    """Return a number as text: empty for None, and with an exponent if more than six digits are asked for."""
    if value is None:
        return ""
    if digits > 6:
        return f"{value:{sign}.1e}"
    return f"{value:{sign}.{digits}f}"


def outcome(artifact: dict[str, Any]) -> str:
    """Return the outcome of an artifact: an error, a skip reason, or its verdicts."""
    if artifact["error"]:
        return f"failed: {artifact['error']}"
    if artifact["not_run"]:
        return f"not run: {artifact['not_run']}"
    verdicts = [f"{count} {name}" for name, count in artifact["verdicts"].items()]
    return ", ".join(verdicts) or "shown, without a number to compare"


def run_facts(report: dict[str, Any]) -> str:
    """Return the number of runs, the training time, the machine and the version as one line."""
    runs = report["runs"]
    return (
        f"{runs['finished']} of {runs['needed']} runs finished, {runs['training_hours']} hours of training. "
        f"{report['machine']}. fna-lightning {report['version']}."
    )
