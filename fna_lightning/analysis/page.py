"""One HTML page that holds everything: style, program and data. It opens from a file and asks no network."""

import base64
import json
import math
import re
from html import escape
from importlib.resources import files
from io import BytesIO
from typing import Any

import numpy as np
from torch import Tensor

# inside a script element these would end it, open a comment, or break a line of JavaScript
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
NO_PARENT = 0xFFFF


def render_page(report: dict[str, Any]) -> str:
    """Return the page of a report; what comes from data enters it as escaped text or as JSON, never as HTML."""
    assets = files("fna_lightning.analysis")
    parts = {
        "title": escape(report["title"]),
        "style": assets.joinpath("page.css").read_text(encoding="utf-8"),
        "script": assets.joinpath("page.js").read_text(encoding="utf-8"),
        "data": embed(packed(report)),
    }
    page = assets.joinpath("page.html").read_text(encoding="utf-8")
    # in one pass: what was filled in is never looked at for another place to fill
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], page)


def embed(value: Any) -> str:
    """Return JSON that can stand inside a script element, whatever texts it holds."""
    text = json.dumps(plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for sign, safe in _UNSAFE.items():
        text = text.replace(sign, safe)
    return text


def plain(value: Any) -> Any:
    """Return ``value`` as JSON knows it: tensors as lists, what is not a number as null."""
    if isinstance(value, dict):
        return {str(key): plain(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, Tensor):
        return plain(value.tolist())
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def packed(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report with its matrices as base64 of little-endian numbers: a tenth of the size of their digits."""
    examples = []
    for example in report["examples"]:
        models = [{**one, "heads": [{**head, **_matrices(head)} for head in one["heads"]]} for one in example["models"]]
        if "pixels" in example:
            example = {**example, "pixels": picture_address(example["pixels"])}
        examples.append({**example, "models": models})
    return {**report, "examples": examples}


def picture_address(pixels: Tensor) -> str:
    """Return (C, S, S) pixels as a PNG inside an address, which asks no network."""
    from PIL import Image

    file = BytesIO()
    Image.fromarray(pixels.permute(1, 2, 0).expand(-1, -1, 3).contiguous().numpy()).save(file, format="PNG")
    return "data:image/png;base64," + base64.b64encode(file.getvalue()).decode("ascii")


def without_matrices(report: dict[str, Any]) -> dict[str, Any]:
    """Return the report for results.json: numbers a program asks for, not the n x n matrices."""
    heavy = ("weights", "parents", "hops", "points")
    examples = []
    for example in report["examples"]:
        models = [
            {
                **{key: value for key, value in one.items() if key != "cross"},
                "heads": [{key: value for key, value in head.items() if key not in heavy} for head in one["heads"]],
            }
            for one in example["models"]
        ]
        kept = {key: value for key, value in example.items() if key != "pixels"}
        examples.append({**kept, "models": models})
    return {**report, "examples": examples}


def _matrices(head: dict[str, Any]) -> dict[str, Any]:
    parents = head["parents"].numpy()
    return {
        "weights": _base64(head["weights"].numpy().astype("<f4")),
        "parents": _base64(np.where(parents < 0, NO_PARENT, parents).astype("<u2")),
        "hops": None,
    }


def _base64(array: np.ndarray[Any, Any]) -> str:
    return base64.b64encode(array.tobytes()).decode("ascii")
