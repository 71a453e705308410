"""Reads the reports of jsonargparse, which span many lines, and turns each into one line with a suggested fix."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from fna_lightning.config.suggest import class_advice, closest, closest_settings, parameters

# lines of a report that do not name the error itself
_NOISE = (
    "Does not validate against any of the Union subtypes",
    "Subtypes:",
    "Errors:",
    "Given value type",
    "Expected a path but",
)
_NONE = ("Expected a <class 'NoneType'>", "Expected <class 'NoneType'>")
_CALLABLE = r"Type typing\.Callable\[.*?\] expects a function or a callable class: "
# the three ways in which jsonargparse reports an option that does not exist
REJECTED_OPTION = (
    r"[Oo]ption '(?P<path>[\w.]+)' is not accepted"
    r"|(?:Group '(?P<group>[\w.]+)' )?does not accept option '(?P<key>[\w.]+)'"
)
SECTIONS = ["seed_everything", "trainer", "model", "data", "logger", "compile", "ckpt_path"]
# long lists of what is accepted do not help
MAX_LISTED = 12


@dataclass
class Problem:
    """The innermost problem of a report.

    Attributes:
        keys: keys of the nested parsers, outermost first.
        owner: class path of the object that has the last key.
        class_path: class path of the object whose settings are wrong.
        text: the problem itself; empty if the report has none.
        expected: expected types of a value of the wrong type.
        value: the wrong value.
    """

    keys: list[str] = field(default_factory=list)
    owner: str | None = None
    class_path: str | None = None
    text: str = ""
    expected: list[str] = field(default_factory=list)
    value: str = ""

    @property
    def key(self) -> str:
        """Dotted name of the setting."""
        return ".".join(self.keys)


def parser_message(report: str, settings: Mapping[str, str] | None = None) -> str:
    """Return the innermost error of a jsonargparse report on one line: where it is, and what is accepted instead.

    Args:
        report: message of the parser.
        settings: how to write each setting of the configuration on the command line, by dotted name.
    """
    settings = settings or {}
    if report.startswith("Problems parsing config"):
        return " ".join(report.split())
    if match := re.match(r"unrecognized arguments: (.*)", report, re.DOTALL):
        return _unknown_argument(match[1], settings)
    if match := re.match(r"the following arguments are required: (.*)", report):
        sections = [name.rpartition(".")[2] for name in match[1].split(", ")]
        return (
            f"the settings {' and '.join(sections)} are missing; name a configuration that has them, for example "
            "--config reviews_fna.yaml"
        )
    if match := re.match(r"argument (?:-\w/)?(--[\w.]+): expected one argument", report):
        return f"{match[1]} needs a value"
    problem = read_report(report)
    if not problem.text:
        return " ".join(report.split())
    text = _describe(problem, settings)
    return f"{problem.key}: {text}" if problem.key else text


def read_report(report: str) -> Problem:
    """Return the innermost problem of a report of jsonargparse."""
    problem = Problem()
    for line in report.splitlines():
        text = re.sub(_CALLABLE, "", line.strip().removeprefix("- "))
        if match := re.match(r'Parser key "(.+?)":\s*(.*)', text):
            problem.keys.append(match[1])
            problem.owner, problem.class_path, text = problem.class_path, None, match[2]
        elif match := re.match(r"Problem with given class_path '(.+?)':?\s*(.*)", text):
            if problem.text:
                break
            problem.class_path, text = match[1], match[2]
        if match := re.match(r"Given value: (?:NestedArg\(key='.*?', val=')?(.*?)(?:'\))?$", text):
            problem.value = problem.value or match[1]
        elif match := re.match(
            r"Expected (?:an? )?(?P<type>.+?)(?:\. Got value: (?P<value>.*?))?(?:\. Got value: .*)?$", text
        ):
            if text.startswith(
                ("Expected a dot import path", "Expected a path but", "Expected instantiatable", *_NONE)
            ):
                pass
            elif not problem.text or problem.expected:
                problem.text = problem.text or text
                problem.expected.append(match["type"])
                problem.value = problem.value or match["value"] or ""
        if text and not problem.text and not text.startswith((*_NOISE, *_NONE)):
            # an option of a nested dataclass is reported without its group
            problem.text = re.sub(r"^unrecognized arguments: --([\w.]+)(=.*)?$", r"Option '\1' is not accepted", text)
    if match := re.search(r"^(.*)\. Got value: Namespace\(class_path='([\w.]+)'", problem.text):
        problem.text, problem.class_path = match[1], match[2]
    return problem


def _describe(problem: Problem, settings: Mapping[str, str]) -> str:
    """Return the problem as one sentence, with what is accepted instead."""
    text = problem.text
    if problem.expected:
        return f"expected {_types(problem.expected)}, got {problem.value!r}"
    if match := re.search(REJECTED_OPTION, text):
        path = ".".join(filter(None, [match["group"], match["path"] or match["key"]]))
        rejected = f"{problem.key}.{path}".lstrip(".")
        others = {name: flag for name, flag in settings.items() if name != rejected}
        return re.sub(r"^Subcommand .*", f"Option '{path}' is not accepted", text) + _accepted(path, problem, others)
    if match := re.match(r"the following arguments are required: (.*)", text):
        option = f"{problem.key}.{match[1].split(', ')[0]}"
        return f"the required setting {match[1]} is missing; add --{option}=VALUE"
    if match := re.match(r"Expected a dot import path string: (.*)", text):
        return f"there is no class {match[1]!r}" + class_advice(match[1], problem.owner, problem.keys)
    if match := re.match(r"module '([\w.]+)' has no attribute '(\w+)'", text):
        return f"{match[1]} has no class {match[2]!r}" + class_advice(f"{match[1]}.{match[2]}", None, [])
    if match := re.match(r"No module named '(.*)'", text):
        name = problem.class_path or problem.value
        advice = class_advice(name, problem.owner, problem.keys)
        return f"{name!r} cannot be imported, because there is no module {match[1]!r}{advice}"
    return re.sub(r"<class '([\w.]+)'>", r"\1", text)


def _accepted(path: str, problem: Problem, settings: Mapping[str, str]) -> str:
    """Return what is accepted instead of a setting, to be appended to the message; empty if that is not known."""
    group, _, key = path.rpartition(".")
    class_path = problem.class_path
    if class_path is None and group == "trainer":
        class_path, group = "lightning.pytorch.Trainer", ""
    accepted = parameters(class_path, group) if class_path else SECTIONS
    if not accepted:
        return ""
    hint = f"; did you mean {similar[0]!r}?" if (similar := closest(key, accepted)) else ""
    if not hint and (elsewhere := closest_settings(key, settings, misspelled=False)):
        return f"; did you mean {elsewhere}?"
    if len(accepted) > MAX_LISTED:
        return hint
    return f"{hint} It takes {', '.join(accepted)}" if hint else f"; it takes {', '.join(accepted)}"


def _unknown_argument(arguments: str, settings: Mapping[str, str]) -> str:
    """Return a message about arguments that no parser knows."""
    words = arguments.split()
    options = [word for word in words if word.startswith("-")]
    if not options:
        return f"unexpected argument {words[0]!r}; a setting is written as --name value"
    option = options[0].partition("=")[0]
    similar = closest_settings(option.lstrip("-"), settings)
    hint = f"did you mean {similar}?" if similar else "--help-all lists the options"
    return f"there is no option {option}; {hint}"


def _types(expected: list[str]) -> str:
    """Return the names of the expected types; the values of literals are listed."""
    names: list[str] = []
    for name in expected:
        literal = re.match(r"typing\.Literal\[(.*)\]$", name)
        names += literal[1].split(", ") if literal else [re.sub(r"<class '([\w.]+)'>", r"\1", name)]
    return " or ".join(dict.fromkeys(names)) if len(names) < 3 else f"one of {', '.join(dict.fromkeys(names))}"
