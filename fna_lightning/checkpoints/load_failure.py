"""Reasons why ``torch.load`` refused a file, without PyTorch's advice to disable the protection."""

import re

from fna_lightning.errors import first_line

# sentences that advise to disable the protection against code in a file
_ADVICE = re.compile(
    r"weights_only\W{0,4}(?:=|set to|argument|to)\W{0,4}`?False|default value of the `weights_only`|safe_globals"
    r"|arbitrary code execution|trusted source|you trust|trust the source|This file can still be loaded"
    r"|Cannot use \W*weights_only|weights_only=True` (?:please|compatible)|documentation of torch\.load",
    re.IGNORECASE,
)
# beginning of a sentence: after a punctuation mark, or at words that PyTorch appends without one
_SENTENCES = re.compile(
    r"(?<=[.!?:;,])\s+(?=[A-Z(`]|$)|\s+(?=In PyTorch \d|Please file an issue|Check the documentation)"
)
_COLORS = re.compile(r"\x1b\[[0-9;]*m")
# file formats for which the whole message is about the argument of torch.load
_FORMATS = {
    "TorchScript archives": "it is a TorchScript archive, which is a program",
    "legacy .tar format": "it is in PyTorch's legacy .tar format, which only an unrestricted pickle can read",
    "explicit pickle_module": "it needs an unrestricted pickle",
}


def load_failure(error: BaseException) -> str:
    """Return a clause that says why ``torch.load`` refused a file."""
    text = _plain(str(error))
    for words, meaning in _FORMATS.items():
        if words in text:
            return meaning
    match = re.search(r"WeightsUnpickler error: (.*)", text) or re.search(r"Weights only load failed\. (.*)", text)
    if match is None:
        return without_advice(first_line(error)) or type(error).__name__
    core = without_advice(match[1]).rstrip(".")
    return f"it is damaged or holds more than tensors and plain values{f' ({core})' if core else ''}"


def without_advice(text: str) -> str:
    """Return a message on one line, without the sentences that advise to disable the protection."""
    sentences = _SENTENCES.split(_plain(text))
    return " ".join(sentence for sentence in sentences if not _ADVICE.search(sentence)).strip()


def _plain(text: str) -> str:
    return " ".join(_COLORS.sub("", text).split())
