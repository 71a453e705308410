"""What a person did wrong, in one sentence: the value, the rule and the way out."""

import difflib
import importlib
import inspect
import re
import sys

# lines of jsonargparse's reports that say nothing about the mistake itself
_NOISE = (
    "Does not validate against any of the Union subtypes",
    "Subtypes:",
    "Errors:",
    "Given value",
    "Expected a <class 'NoneType'>",
    "Expected a dict with a class_path",
)


class UsageError(Exception):
    """A command line or configuration that cannot be run as it stands."""


def one_sentence(report: str) -> str:
    """Return the innermost complaint of a jsonargparse report, with where it is and what is accepted instead."""
    if report.startswith("Problems parsing config"):
        return " ".join(report.split())
    keys: list[str] = []
    class_path, complaint = None, None
    for line in report.splitlines():
        text = line.strip().removeprefix("- ")
        if found := re.match(r'Parser key "(.+?)":\s*(.*)', text):
            keys.append(found[1])
            text = found[2]
        elif found := re.match(r"Problem with given class_path '(.+?)':?\s*(.*)", text):
            class_path, text = found[1], found[2]
        if text and not text.startswith(_NOISE):
            complaint = text
            break
    if complaint is None:
        return " ".join(report.split())
    where = ".".join(keys)
    sentence = f"{where}: {complaint}" if where else complaint
    return re.sub(r"<class '([\w.]+)'>", r"\1", sentence) + _way_out(complaint, class_path)


def _way_out(complaint: str, class_path: str | None) -> str:
    if found := re.search(r"[Oo]ption '([\w.]+)' is not accepted|does not accept option '([\w.]+)'", complaint):
        key = found[1] or found[2]
        if class_path is None and key.startswith("trainer."):
            class_path, key = "lightning.pytorch.Trainer", key.removeprefix("trainer.")
        accepted = (
            _parameters(class_path) if class_path else ["seed_everything", "trainer", "model", "data", "ckpt_path"]
        )
        if not accepted:
            return ""
        near = difflib.get_close_matches(key, accepted, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        return f"{meant or ';'} It takes {', '.join(accepted)}" if len(accepted) <= 12 else meant
    if found := re.search(r"Expected a dot import path string: (\S+)|Expected a path but (\S+) either", complaint):
        near = difflib.get_close_matches(found[1] or found[2], _known_classes(), n=1)
        meant = f"did you mean {near[0]!r}? " if near else ""
        return f"; {meant}`fna-lightning list` names the classes, others are written as package.module.Class"
    return ""


def _parameters(class_path: str) -> list[str]:
    """Return the parameters of a class that has been imported; a report may quote any name, so none is imported."""
    module, _, name = class_path.rpartition(".")
    kind = getattr(sys.modules.get(module), name, None)
    if not inspect.isclass(kind):
        return []
    return [parameter for parameter in inspect.signature(kind).parameters if parameter not in ("args", "kwargs")]


def _known_classes() -> list[str]:
    names: list[str] = []
    for room in ("attention", "nn", "tasks", "callbacks"):
        names += importlib.import_module(f"fna_lightning.{room}").__all__
    return names
