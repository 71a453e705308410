"""What a file may describe: every parameter of every class is attacked, and every shipped configuration passes."""

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

from fna_lightning import allowed_classes, plugins
from fna_lightning.attention import Attention, Projection
from fna_lightning.checkpoints.exact.metrics import _log_again
from fna_lightning.checkpoints.load import build_task
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
    """The example plug-in as if it were installed."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PLUGIN))
        points = (EntryPoint("example", "fna_example", plugins.GROUP),)
        patch.setattr(plugins, "entry_points", lambda group: points)
        _forget()
        yield
    _forget()


def _forget() -> None:
    for function in (plugins.load_plugins, model_classes, trainer_classes):
        function.cache_clear()


@pytest.fixture
def bird(tmp_path: Path) -> Iterator[Canary]:
    with canary(tmp_path) as put:
        yield put


def ours(table: ClassTable) -> list[type]:
    """Return the concrete classes of this package and of the example plug-in."""
    kinds = [kind for kind in table.homes if kind.__module__.startswith(("fna_lightning", "fna_example"))]
    return [kind for kind in kinds if not inspect.isabstract(kind)]


def takes(kind: type) -> list[str]:
    """Return the names of all parameters of a class, and one that it may not have."""
    names: dict[str, None] = {}
    for base in kind.__mro__:
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
        # parsing imports, instantiating calls; the trainer itself is not made
        given = parser.parse_object({"trainer": checked_config(path)["trainer"]})
        parser.instantiate_classes(given, instantiate_groups=False)
    except (TypeError, ValueError, ArgumentError) as error:
        raise UsageError(str(error)) from error


def model_configs() -> list[dict[str, Any]]:
    """Return a model_config of every task, as its checkpoints carry it."""
    attention = {"class_path": "DotProduct"}
    facts = {"vocab_size": 9, "num_classes": 2, "channels": 1, "image_size": 8}
    facts |= {"source_vocab_size": 9, "target_vocab_size": 9}
    tasks = [kind for kind in ours(model_classes()) if issubclass(kind, Task)]
    assert {kind.__name__ for kind in tasks} == {
        "FindRepeat",
        "ImageClassification",
        "TextClassification",
        "Translation",
    }
    return [
        {
            "class_path": kind.__name__,
            "init_args": {"attention": attention, **{key: facts[key] for key in parameters(kind) if key in facts}},
        }
        for kind in tasks
    ]


def placements(spec: dict[str, Any], kind: type, place: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Yield (place, description) for every parameter below a class, and below every class that fits a parameter.

    The description is that of the whole, with the classes on the way to the place.
    """
    for name in takes(kind):
        yield (*place, name), spec
        hint = parameters(kind).get(name, UNKNOWN)
        for below in fitting(hint):
            # a class of itself within itself would have no end
            if len(place) < 3:
                inner = _with(spec, (*place, name), {"class_path": model_classes().path(below), "init_args": {}})
                yield from placements(inner, below, (*place, name))


def fitting(hint: Any) -> list[type]:
    """Return the classes of ours that a parameter accepts, one that inherits from another left out."""
    bases = [base for option in alternatives(hint) for base in _returned(option)]
    kinds = [kind for kind in ours(model_classes()) if bases and issubclass(kind, tuple(bases))]
    return [kind for kind in kinds if kind not in (Attention, Projection)]


def _returned(option: Any) -> list[type]:
    if typing.get_origin(option) in (abc.Callable, list):
        parts = typing.get_args(option)[-1:]
        return [base for part in parts for one in alternatives(part) for base in _returned(one)]
    return [option] if inspect.isclass(option) and not is_plain(option) and option is not object else []


def _with(tree: dict[str, Any], place: tuple[str, ...], value: Any) -> dict[str, Any]:
    """Return a description with a value at a place among its arguments."""
    name, *rest = place
    arguments = dict(tree.get("init_args", {}))
    arguments[name] = _with(arguments[name], tuple(rest), value) if rest else value
    return {**tree, "init_args": arguments}


def attack_everywhere(spec: dict[str, Any], kind: type, bird: Canary, build: Any) -> int:
    """Try every attack at every place, and return how many there were."""
    count = 0
    for place, whole in placements(spec, kind):
        for name, value in bird.attacks().items():
            count += 1
            try:
                build(_with(whole, place, value))
            except UsageError:
                pass
            except Exception as error:
                pytest.fail(f"{name} at {'.'.join(place)}: {type(error).__name__} {error}")
            else:
                # a text that is only a text
                assert isinstance(value, str), f"{name} at {'.'.join(place)} was accepted"
            bird.check()
    return count


@pytest.mark.parametrize("task", range(4))
def test_every_parameter_of_every_task(task: int, bird: Canary) -> None:
    model_config = model_configs()[task]
    kind = model_classes().find(model_config["class_path"])
    assert kind is not None
    build_model_config(model_config)
    assert attack_everywhere(model_config, kind, bird, build_model_config) > 300


def test_every_parameter_of_every_data_module(bird: Canary, tmp_path: Path) -> None:
    kinds = [kind for kind in ours(model_classes()) if issubclass(kind, L.LightningDataModule)]
    assert {"ReviewData", "ImdbData", "RepeatData"} <= {kind.__name__ for kind in kinds}
    for kind in kinds:
        spec = {"class_path": kind.__name__, "init_args": {}}
        build_data(spec, tmp_path)
        assert attack_everywhere(spec, kind, bird, lambda spec: build_data(spec, tmp_path)) > 60


def test_every_parameter_of_every_class_in_the_list(bird: Canary) -> None:
    # also of those that no task of ours takes: layers, optimisers, schedules, callbacks, loggers
    attacks = bird.attacks()
    for table in (model_classes(), trainer_classes()):
        check = FileCheck("file", table, "way out")
        for kind in table.homes:
            for name in takes(kind):
                for attack, value in attacks.items():
                    spec = {"class_path": table.path(kind), "init_args": {name: value}}
                    for hint in (kind, Any, UNKNOWN):
                        try:
                            checked = check.check(spec, hint, "place")
                        except UsageError:
                            pass
                        else:
                            assert isinstance(value, str), f"{attack} as {kind.__name__}.{name} was accepted"
                            assert checked["init_args"][name] == value
                            options = alternatives(parameters(kind)[name])
                            # a bare name is not imported where the type is a union with str, or anything
                            assert all(map(is_plain, options)) or value == NAME
    bird.check()


def test_every_parameter_of_the_trainer(bird: Canary, tmp_path: Path) -> None:
    for name in takes(L.Trainer):
        for attack, value in bird.attacks().items():
            for given in (value, [value]):
                try:
                    build_trainer({name: given}, tmp_path)
                except UsageError:
                    pass
                else:
                    assert isinstance(value, str), f"{attack} as {name} was accepted"
                bird.check()


def test_every_parameter_of_every_callback(bird: Canary, tmp_path: Path) -> None:
    callbacks = [kind for kind in trainer_classes().homes if issubclass(kind, L.Callback)]
    assert {"AttentionGraph", "Curve", "EarlyStopping"} <= {kind.__name__ for kind in callbacks}
    for kind in callbacks:
        for name in takes(kind):
            for attack in ("function", "path of a function", "YAML", "file", "beside a class"):
                value = bird.attacks()[attack]
                spec = {"class_path": trainer_classes().path(kind), "init_args": {name: value}}
                try:
                    build_trainer({"callbacks": [spec]}, tmp_path)
                except UsageError:
                    pass
                else:
                    assert isinstance(value, str), f"{attack} as {kind.__name__}.{name} was accepted"
                bird.check()


@pytest.mark.parametrize("attack", ["function", "function of an imported module", "YAML", "file", "path of a function"])
def test_the_attacks_are_real(attack: str, bird: Canary) -> None:
    model_config = next(config for config in model_configs() if config["class_path"] == "TextClassification")
    model_config["init_args"]["embedding"] = bird.attacks()[attack]
    with contextlib.suppress(UsageError):
        build_task(model_config, trust=True)
    assert bird.went_off()


def saved(config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the config.yaml that a run of a configuration would save; nothing is built."""
    monkeypatch.setattr(TrainingCLI, "instantiate_classes", lambda self: None)
    monkeypatch.setattr(TrainingCLI, "_run_subcommand", lambda self, subcommand: None)
    cli = TrainingCLI(["fit", "--config", str(config)], "name")
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
    assert settings["model"]["init_args"]["optimizer"]["class_path"].startswith("torch.optim.")
    # what runs save has full names already: it comes out as it went in
    assert checked_config(path) == settings
    # and so does the file as it is written by hand, with its short names
    hand = tmp_path / "hand" / "config.yaml"
    hand.parent.mkdir()
    hand.write_text(config.read_text())
    checked = checked_config(hand)
    assert checked["model"]["class_path"] == settings["model"]["class_path"]
    assert checked["data"]["class_path"] == settings["data"]["class_path"]


def test_the_text_is_read_as_it_was_checked(tmp_path: Path) -> None:
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
def test_what_is_too_large_to_be_a_configuration(tree: Any, words: str) -> None:
    check = FileCheck("file", model_classes(), "way out")
    with pytest.raises(UsageError, match=rf"^file: place .*{words}.*; do not trust it$"):
        check.check(tree, Any, "place")


@pytest.mark.parametrize(
    "text",
    ["a: &a [*a]", "a: " + "[" * 100_000, "a: &a [x]\nb: &b [*a, *a]\nmodel: *b", "just a text", "- a list", "\x00"],
    ids=["self-reference", "brackets", "aliases", "text", "list", "binary"],
)
def test_strange_files(text: str, tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(UsageError, match=r"config\.yaml"):
        checked_config(path)


def test_names_of_classes() -> None:
    table = model_classes()
    for name in ("Adam", "torch.optim.Adam", "torch.optim.adam.Adam"):
        found = table.find(name)
        assert found is not None
        assert table.path(found) == "torch.optim.Adam"
    # ours before torch's of the same name, unless the type says which
    assert table.path(table.find("Embedding") or object) == "fna_lightning.nn.Embedding"
    for name in ("os.system", "torch.load", "torch.nn.Sequential", "LambdaCallback", "torch.optim.Optimizer", "", "."):
        assert table.find(name) is None
    assert not any(inspect.isfunction(kind) for kind in (*table.homes, *trainer_classes().homes))
    for home, names in allowed_classes.LIGHTNING_CLASSES.items():
        for name in names:
            assert trainer_classes().find(f"{home}.{name}") is not None


def test_a_checkpoint_names_no_function_of_torch() -> None:
    entry = {"fx": "training_step", "name": "train/loss", "reduce_fx": "load", "states": {}}
    with pytest.raises(UsageError, match="reduces 'train/loss' by 'load', which is not one of mean, sum, max, min"):
        _log_again(None, None, entry)  # type: ignore[arg-type]


def test_the_canary_is_silent(bird: Canary) -> None:
    __import__(NAME)
    with pytest.raises(AssertionError):
        bird.check()
    assert bird.went_off()
    assert NAME not in sys.modules
