"""Settings in untrusted files: attacks on every parameter of every class are refused; shipped configurations pass."""

import contextlib
import inspect
import sys
import typing
from argparse import ArgumentError
from collections import abc
from collections.abc import Iterator
from functools import cache
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import yaml
from jsonargparse import ArgumentParser
from lightning.pytorch.cli import LightningArgumentParser
from torch.optim import Optimizer

from fna_lightning.attention import Attention, Projection
from fna_lightning.checkpoints.exact.metrics import _log_again
from fna_lightning.checkpoints.load import build_task
from fna_lightning.config import allowed_classes, plugins
from fna_lightning.config.allowed_classes import ClassTable, model_classes, trainer_classes
from fna_lightning.config.resolve import shipped_configs
from fna_lightning.config.run_config import as_text, checked_config, read_settings
from fna_lightning.config.trust import UNKNOWN, FileCheck, alternatives, is_plain, parameters
from fna_lightning.errors import UsageError
from fna_lightning.task import Task
from fna_lightning.training.cli import TrainingCLI
from fna_lightning.utils.limits import MAX_DEPTH

from helpers.canary import NAME, Canary, canary

PLUGIN = Path(__file__).parents[2] / "examples" / "plugin"


@pytest.fixture(scope="module", autouse=True)
def example_plugin() -> Iterator[None]:
    """Make the example plug-in available as if it were installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLUGIN))
        points = (EntryPoint("example", "fna_example", plugins.GROUP),)
        patch.setattr(plugins, "entry_points", lambda group: points)
        _clear_caches()
        yield
    _clear_caches()


def _clear_caches() -> None:
    for function in (plugins.load_plugins, model_classes, trainer_classes):
        function.cache_clear()


@pytest.fixture
def code(tmp_path: Path) -> Iterator[Canary]:
    with canary(tmp_path) as module:
        yield module


def own_classes(table: ClassTable) -> list[type]:
    """Return the concrete classes of this package and of the example plug-in."""
    classes = [cls for cls in table.homes if cls.__module__.startswith(("fna_lightning", "fna_example"))]
    return [cls for cls in classes if not inspect.isabstract(cls)]


def parameter_names(cls: type) -> list[str]:
    """Return the names of all parameters of a class, and one that it does not have."""
    names: dict[str, None] = {}
    for base in cls.__mro__:
        init = vars(base).get("__init__")
        if inspect.isfunction(init):
            names |= dict.fromkeys(inspect.signature(init).parameters)
    return [name for name in names if name != "self"] + ["no_such_parameter"]


def build_model_config(model_config: Any) -> None:
    build_task(model_config)


def build_data(spec: Any, folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"data": spec}))
    parser = ArgumentParser(exit_on_error=False)
    parser.add_subclass_arguments(L.LightningDataModule, "data")
    try:
        parser.instantiate_classes(parser.parse_object({"data": checked_config(path)["data"]}))
    except (TypeError, ValueError, ArgumentError) as error:
        raise UsageError(str(error)) from error


@cache
def trainer_parser() -> LightningArgumentParser:
    parser = LightningArgumentParser(exit_on_error=False)
    parser.add_lightning_class_args(L.Trainer, "trainer")
    return parser


def build_trainer(settings: dict[str, Any], folder: Path) -> None:
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump({"trainer": settings}))
    parser = trainer_parser()
    try:
        # parsing imports what is named, instantiating calls it; the trainer itself is not created
        parsed = parser.parse_object({"trainer": checked_config(path)["trainer"]})
        parser.instantiate_classes(parsed, instantiate_groups=False)
    except (TypeError, ValueError, ArgumentError) as error:
        raise UsageError(str(error)) from error


def model_configs() -> list[dict[str, Any]]:
    """Return a model_config of every task, as in its checkpoints."""
    attention = {"class_path": "DotProduct"}
    facts = {"vocab_size": 9, "num_classes": 2, "channels": 1, "image_size": 8}
    facts |= {"source_vocab_size": 9, "target_vocab_size": 9}
    facts |= {"coordinate_dim": 2, "value_dim": 1, "eval_sets": ["n16"]}
    tasks = [cls for cls in own_classes(model_classes()) if issubclass(cls, Task)]
    assert {cls.__name__ for cls in tasks} == {
        "FieldRegression",
        "FindRepeat",
        "ImageClassification",
        "TextClassification",
        "Translation",
    }
    return [
        {
            "class_path": cls.__name__,
            "init_args": {"attention": attention, **{key: facts[key] for key in parameters(cls) if key in facts}},
        }
        for cls in tasks
    ]


def placements(spec: dict[str, Any], cls: type, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (place, specification) for every parameter of a class, and of every class that fits a parameter.

    The specification is that of the outermost class, with the classes on the path to the place.
    """
    for name in parameter_names(cls):
        yield (*place, name), spec
        hint = parameters(cls).get(name, UNKNOWN)
        for inner_class in fitting(hint):
            # a class with a parameter of its own type would recurse forever
            if len(place) < 3:
                inner = _with(spec, (*place, name), {"class_path": model_classes().path(inner_class), "init_args": {}})
                yield from placements(inner, inner_class, (*place, name))


def fitting(hint: Any) -> list[type]:
    """Return the classes of this package that a parameter accepts."""
    bases = [base for option in alternatives(hint) for base in _returned(option)]
    classes = [cls for cls in own_classes(model_classes()) if bases and issubclass(cls, tuple(bases))]
    return [cls for cls in classes if cls not in (Attention, Projection)]


def _returned(option: Any) -> list[type]:
    if typing.get_origin(option) in (abc.Callable, list):
        parts = typing.get_args(option)[-1:]
        return [base for part in parts for inner in alternatives(part) for base in _returned(inner)]
    return [option] if inspect.isclass(option) and not is_plain(option) and option is not object else []


def _with(tree: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a specification with a value at a place among its arguments."""
    name, *rest = place
    arguments = dict(tree.get("init_args", {}))
    arguments[name] = _with(arguments[name], tuple(rest), value) if rest else value
    return {**tree, "init_args": arguments}


def attack_everywhere(spec: dict[str, Any], cls: type, code: Canary, build: Any) -> int:
    """Try every attack at every place, and return the number of attacks."""
    count = 0
    for place, outer in placements(spec, cls):
        for name, value in code.attacks().items():
            count += 1
            try:
                build(_with(outer, place, value))
            except UsageError:
                pass
            except Exception as error:
                pytest.fail(f"{name} at {'.'.join(place)}: {type(error).__name__} {error}")
            else:
                # a string may be accepted as a string
                assert isinstance(value, str), f"{name} at {'.'.join(place)} was accepted"
            code.check()
    return count


@pytest.mark.parametrize("task", range(5))
def test_attacks_on_every_parameter_of_every_task(task: int, code: Canary) -> None:
    model_config = model_configs()[task]
    cls = model_classes().find(model_config["class_path"])
    assert cls is not None
    build_model_config(model_config)
    assert attack_everywhere(model_config, cls, code, build_model_config) > 300


def test_attacks_on_every_parameter_of_every_data_module(code: Canary, tmp_path: Path, small_data: Path) -> None:
    classes = [cls for cls in own_classes(model_classes()) if issubclass(cls, L.LightningDataModule)]
    assert {"ReviewData", "ImdbData", "RepeatData"} <= {cls.__name__ for cls in classes}
    for cls in classes:
        # the images of the user need a path
        path = {"path": str(small_data / "photos")} if cls.__name__ in ("HubImages", "ImageFolder") else {}
        spec = {"class_path": cls.__name__, "init_args": path}
        build_data(spec, tmp_path)
        assert attack_everywhere(spec, cls, code, lambda spec: build_data(spec, tmp_path)) > 60


def test_attacks_on_every_parameter_of_every_allowed_class(code: Canary) -> None:
    # including classes that no task of this package takes: layers, optimizers, schedules, callbacks, loggers
    attacks = code.attacks()
    for table in (model_classes(), trainer_classes()):
        check = FileCheck("file", table, "way out")
        for cls in table.homes:
            for name in parameter_names(cls):
                for attack, value in attacks.items():
                    spec = {"class_path": table.path(cls), "init_args": {name: value}}
                    for hint in (cls, Any, UNKNOWN):
                        try:
                            checked = check.check(spec, hint, "place")
                        except UsageError:
                            pass
                        else:
                            assert isinstance(value, str), f"{attack} as {cls.__name__}.{name} was accepted"
                            assert checked["init_args"][name] == value
                            options = alternatives(parameters(cls)[name])
                            # a bare name is not imported if the type is Any or a union with str
                            assert all(map(is_plain, options)) or value == NAME
    code.check()


def test_attacks_on_every_parameter_of_the_trainer(code: Canary, tmp_path: Path) -> None:
    for name in parameter_names(L.Trainer):
        for attack, value in code.attacks().items():
            for argument in (value, [value]):
                try:
                    build_trainer({name: argument}, tmp_path)
                except UsageError:
                    pass
                else:
                    assert isinstance(value, str), f"{attack} as {name} was accepted"
                code.check()


def test_attacks_on_every_parameter_of_every_callback(code: Canary, tmp_path: Path) -> None:
    callbacks = [cls for cls in trainer_classes().homes if issubclass(cls, L.Callback)]
    assert {"AttentionGraph", "Curve", "EarlyStopping"} <= {cls.__name__ for cls in callbacks}
    for cls in callbacks:
        for name in parameter_names(cls):
            for attack in ("function", "path of a function", "YAML", "file", "beside a class"):
                value = code.attacks()[attack]
                spec = {"class_path": trainer_classes().path(cls), "init_args": {name: value}}
                try:
                    build_trainer({"callbacks": [spec]}, tmp_path)
                except UsageError:
                    pass
                else:
                    assert isinstance(value, str), f"{attack} as {cls.__name__}.{name} was accepted"
                code.check()


@pytest.mark.parametrize("attack", ["function", "function of an imported module", "YAML", "file", "path of a function"])
def test_the_attacks_work_without_the_check(attack: str, code: Canary) -> None:
    model_config = next(config for config in model_configs() if config["class_path"] == "TextClassification")
    model_config["init_args"]["embedding"] = code.attacks()[attack]
    with contextlib.suppress(UsageError):
        build_task(model_config, trust=True)
    assert code.was_run()


def saved(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the config.yaml that a run of a configuration would save; the model is not built."""
    monkeypatch.setattr(TrainingCLI, "instantiate_classes", lambda self: None)
    monkeypatch.setattr(TrainingCLI, "_run_subcommand", lambda self, subcommand: None)
    cli = TrainingCLI(["fit", "--config", str(config)], "name", lambda callbacks, context: callbacks)
    path = tmp_path / "config.yaml"
    parser = cli._parser("fit")
    path.write_text(parser.dump(cli.config["fit"], skip_none=False, skip_check=True))
    return path


@pytest.mark.parametrize(
    "config",
    [*shipped_configs().values(), PLUGIN / "fna_example/configs/example_cauchy.yaml"],
    ids=lambda path: path.stem,
)
def test_shipped_configurations_pass(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(config, tmp_path, monkeypatch)
    settings = read_settings(path)
    optimizer = model_classes().find(settings["model"]["init_args"]["optimizer"]["class_path"])
    assert optimizer is not None
    assert issubclass(optimizer, Optimizer)
    # a saved configuration has full names already, so the check does not change it
    assert checked_config(path) == settings
    # the check also accepts the bare names of the shipped file
    copy = tmp_path / "copy" / "config.yaml"
    copy.parent.mkdir()
    copy.write_text(config.read_text())
    checked = checked_config(copy)
    assert checked["model"]["class_path"] == settings["model"]["class_path"]
    assert checked["data"]["class_path"] == settings["data"]["class_path"]


def test_checked_settings_survive_as_text(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "trainer: {max_time: '1e-3', gradient_clip_val: 1e-3, min_epochs: null, max_epochs: 3}\nmodel: null\n"
    )
    settings = checked_config(path)
    assert settings["trainer"] == {"max_time": "1e-3", "gradient_clip_val": 0.001, "min_epochs": None, "max_epochs": 3}
    (tmp_path / "again.yaml").write_text(as_text(settings))
    assert read_settings(tmp_path / "again.yaml") == settings


def nested(depth: int) -> Any:
    tree: Any = 0
    for _ in range(depth):
        tree = [tree]
    return tree


def endless() -> Any:
    tree: list[Any] = []
    tree.append(tree)
    return tree


def laughs() -> Any:
    tree: Any = ["ha"] * 10
    for _ in range(12):
        tree = [tree] * 10
    return tree


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        (nested(MAX_DEPTH + 2), "nested more than"),
        (nested(100_000), "nested more than"),
        (endless(), "nested more than"),
        (laughs(), "more than 5,000,000 values"),
    ],
    ids=["deep", "very deep", "endless", "laughs"],
)
def test_settings_beyond_the_limits_are_refused(tree: Any, words: str) -> None:
    check = FileCheck("file", model_classes(), "way out")
    with pytest.raises(UsageError, match=rf"^file: place .*{words}.*; do not trust it$"):
        check.check(tree, Any, "place")


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]", "a: " + "[" * 100_000, "a: &a [x]\nb: &b [*a, *a]\nmodel: *b", "just a text", "- a list", "\x00"],
    ids=["self-reference", "brackets", "aliases", "text", "list", "binary"],
)
def test_files_without_valid_settings_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.yaml"):
        checked_config(path)


def test_classes_are_found_by_name() -> None:
    table = model_classes()
    for name in ("Adam", "torch.optim.Adam", "torch.optim.adam.Adam"):
        cls = table.find(name)
        assert cls is not None
        assert table.path(cls) == "torch.optim.Adam"
    # a class of this package comes before a class of torch with the same name
    assert table.path(table.find("Embedding") or object) == "fna_lightning.nn.Embedding"
    for name in ("os.system", "torch.load", "torch.nn.Sequential", "LambdaCallback", "torch.optim.Optimizer", "", "."):
        assert table.find(name) is None
    assert not any(inspect.isfunction(cls) for cls in (*table.homes, *trainer_classes().homes))
    for path in allowed_classes.OUR_CLASSES:
        assert table.find(f"fna_lightning.{path}") is not None, path
    for home, names in allowed_classes.LIGHTNING_CLASSES.items():
        for name in names:
            assert trainer_classes().find(f"{home}.{name}") is not None


def test_a_checkpoint_cannot_name_a_function_of_torch() -> None:
    entry = {"fx": "training_step", "name": "train/loss", "reduce_fx": "load", "states": {}}
    with pytest.raises(UsageError, match="reduces 'train/loss' by 'load', which is not one of mean, sum, max, min"):
        _log_again(None, None, entry)  # type: ignore[arg-type]


def test_the_canary_records_an_import(code: Canary) -> None:
    __import__(NAME)
    with pytest.raises(AssertionError):
        code.check()
    assert code.was_run()
    assert NAME not in sys.modules
