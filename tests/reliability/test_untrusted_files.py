"""Checkpoints, exported folders and run folders that name code: every command refuses them before running it."""

import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

from fna_lightning.checkpoints.load import load_task, read_checkpoint
from fna_lightning.cli import main
from fna_lightning.config.parser_report import parser_message
from fna_lightning.errors import UsageError

from helpers.interrupted import COMMON, TASKS, fit
from helpers.tiny_runs import train_tiny
from helpers.tiny_translation import train_tiny_translation

pytestmark = pytest.mark.e2e

SYSTEM = {"class_path": "os.system", "init_args": {"command": "touch PWNED"}}
# each creates the file PWNED when it is called
PAYLOADS = {
    "os.system": SYSTEM,
    "subprocess.getoutput": {"class_path": "subprocess.getoutput", "init_args": {"cmd": "touch PWNED"}},
    "runpy.run_path": {"class_path": "runpy.run_path", "init_args": {"path_name": "script.py"}},
    "reduce_graph_module": {
        "class_path": "torch.fx.graph_module.reduce_graph_module",
        "init_args": {"body": {"_code": "open('PWNED', 'w')"}, "import_block": "open('PWNED', 'w')"},
    },
    "YAML in a string": "{class_path: os.system, init_args: {command: touch PWNED}}",
    "file": "settings",
    "path of a module": "attacker_module.anything",
    "class": {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "PWNED"]}},
}
PLACES = ("attention", "encoder", "embedding", "optimizer", "lr_scheduler")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of a finished run of a text classifier."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("run"), "--trainer.callbacks=[]").parents[1]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Checkpoint of a translation model."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("translator"), "trainer.max_epochs=1")


@pytest.fixture(autouse=True)
def working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory with the files that some payloads need."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_RUN_DIR", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "script.py").write_text("open('PWNED', 'w')")
    (tmp_path / "attacker_module.py").write_text("open('PWNED', 'w')")
    (tmp_path / "settings").write_text(yaml.safe_dump(SYSTEM))
    return tmp_path


def poisoned_checkpoint(good: Path, payload: Any, *place: str) -> Path:
    """Write a copy of a checkpoint with a payload in its model_config, and return its path."""
    checkpoint = read_checkpoint(good)
    _put(checkpoint["model_config"]["init_args"], payload, place)
    torch.save(checkpoint, "bad.ckpt")
    return Path("bad.ckpt")


def poisoned_run(good: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of a run folder with a changed configuration."""
    folder = Path("untrusted") / "version_0"
    shutil.copytree(good, folder)
    settings = yaml.safe_load((good / "config.yaml").read_text())
    change(settings)
    (folder / "config.yaml").write_text(yaml.safe_dump(settings))
    return folder


def _put(tree: dict[str, Any], payload: Any, place: tuple[str, ...]) -> None:
    for key in place[:-1]:
        tree = tree[key]
    tree[place[-1]] = payload


def refused(argv: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command that must be refused, and return its error message."""
    capsys.readouterr()
    assert main(argv) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("resuming ")]
    assert line.startswith("fna-lightning: error: ")
    assert not Path("PWNED").exists()
    return line


def test_every_command_that_reads_a_model(
    run: Path, translator: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def attack(settings: dict[str, Any]) -> None:
        settings["model"]["init_args"]["optimizer"] = SYSTEM

    bad = str(poisoned_checkpoint(run / "checkpoints" / "best.ckpt", SYSTEM, "optimizer"))
    for argv in (
        ["classify", bad, "a text"],
        ["analyze", bad, "--text", "a film to remember"],
        ["export", bad, "published"],
    ):
        assert "bad.ckpt: model_config.init_args.optimizer names 'os.system', but" in refused(argv, capsys)
    bad = str(poisoned_checkpoint(translator, SYSTEM, "optimizer"))
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"one\n")))
    assert "model_config.init_args.optimizer names 'os.system', but" in refused(["translate", bad], capsys)
    folder = poisoned_run(run, attack)
    best = f"--ckpt_path={folder / 'checkpoints' / 'best.ckpt'}"
    for argv in (["resume", str(folder)], ["test", "--config", str(folder / "config.yaml"), best]):
        message = refused(argv, capsys)
        assert "config.yaml: model.init_args.optimizer names 'os.system', but" in message
        assert message.endswith("add --trust if you know who wrote the file")


def test_an_exported_folder(run: Path) -> None:
    pytest.importorskip("huggingface_hub", reason="needs the extra `export`")
    from fna_lightning.integrations.hub import PublishedModel

    assert main(["export", str(run / "checkpoints" / "best.ckpt"), "published"]) == 0
    config = json.loads(Path("published/config.json").read_text())
    config["model_config"]["init_args"]["optimizer"] = SYSTEM
    Path("published/config.json").write_text(json.dumps(config))
    with pytest.raises(
        UsageError, match=r"config\.json cannot be built: .*model_config\.init_args\.optimizer names 'os\.sys"
    ):
        PublishedModel.from_pretrained("published")
    assert not Path("PWNED").exists()


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("place", PLACES)
def test_a_model_config_runs_no_payload(place: str, payload: str, run: Path) -> None:
    bad = poisoned_checkpoint(run / "checkpoints" / "best.ckpt", PAYLOADS[payload], place)
    with pytest.raises(UsageError, match=rf"model_config\.init_args\.{place}"):
        load_task(bad)
    assert not Path("PWNED").exists()
    assert "attacker_module" not in sys.modules


@pytest.mark.parametrize("payload", ["os.system", "attacker_module.anything", "runpy.run_path", SYSTEM])
@pytest.mark.parametrize(
    ("schedule", "parameter"),
    [("LambdaLR", "lr_lambda"), ("MultiplicativeLR", "lr_lambda"), ("CyclicLR", "scale_fn")],
)
def test_a_schedule_cannot_name_a_function(schedule: str, parameter: str, payload: Any, run: Path) -> None:
    spec = {"class_path": f"torch.optim.lr_scheduler.{schedule}", "init_args": {parameter: payload}}
    bad = poisoned_checkpoint(run / "checkpoints" / "best.ckpt", spec, "lr_scheduler")
    with pytest.raises(UsageError, match=rf"model_config\.init_args\.lr_scheduler\.init_args\.{parameter} names"):
        load_task(bad)
    assert not Path("PWNED").exists()
    assert "attacker_module" not in sys.modules


@pytest.mark.parametrize(
    "change",
    [
        {"optimizer.class_path": "os.system", "optimizer.init_args.command": "touch PWNED"},
        {"encoder.class_path": "os.system", "encoder.init_args.command": "touch PWNED"},
    ],
)
def test_a_key_with_dots_is_refused(change: dict[str, Any], run: Path) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.ckpt")
    arguments = checkpoint["model_config"]["init_args"]
    (place,) = {key.partition(".")[0] for key in change}
    del arguments[place]
    arguments.update(change)
    torch.save(checkpoint, "bad.ckpt")
    with pytest.raises(UsageError, match="which is not the name of a parameter"):
        load_task("bad.ckpt")
    assert not Path("PWNED").exists()


def test_payloads_in_dict_kwargs_are_refused(run: Path) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.ckpt")
    del checkpoint["model_config"]["init_args"]["encoder"]
    checkpoint["model_config"]["dict_kwargs"] = {"encoder": SYSTEM}
    torch.save(checkpoint, "bad.ckpt")
    with pytest.raises(UsageError, match=r"model_config\.dict_kwargs\.encoder names 'os\.system'"):
        load_task("bad.ckpt")
    assert not Path("PWNED").exists()


def test_a_model_config_holds_plain_values_only(run: Path) -> None:
    for value, reason in ((torch.ones(2), "is a Tensor, but only plain values"), ({1, 2}, "is a set, but only")):
        bad = poisoned_checkpoint(run / "checkpoints" / "best.ckpt", value, "pooling")
        with pytest.raises(UsageError, match=rf"model_config\.init_args\.pooling {reason}"):
            load_task(bad)


@pytest.mark.parametrize(
    ("section", "value", "words"),
    [
        (
            "callbacks",
            [{"class_path": "LambdaCallback", "init_args": {"on_fit_start": "os.abort"}}],
            "'LambdaCallback'",
        ),
        ("callbacks", "settings", "'settings'"),
        ("callbacks", ["settings"], "'settings'"),
        ("logger", SYSTEM, "'os.system'"),
        ("logger", "attacker_module.anything", "'attacker_module.anything'"),
        ("plugins", [{"class_path": "lightning.fabric.plugins.TorchCheckpointIO"}], "TorchCheckpointIO'"),
        ("plugins", "attacker_module.anything", "'attacker_module.anything'"),
        ("strategy", "attacker_module.anything", "'attacker_module.anything'"),
        ("strategy", {"class_path": "DDPStrategy", "init_args": {"ddp_comm_hook": "os.system"}}, "'os.system'"),
        ("strategy", "settings", "'settings'"),
        ("accelerator", "settings", "'settings'"),
        ("profiler", "attacker_module.anything", "'attacker_module.anything'"),
        ("profiler", str(SYSTEM), "class_path"),
    ],
)
@pytest.mark.parametrize("verb", ["resume", "fit", "validate", "test", "predict"])
def test_payloads_in_the_trainer_settings(
    verb: str, section: str, value: Any, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = poisoned_run(run, lambda settings: settings["trainer"].update({section: value}))
    config = f"--config={folder / 'config.yaml'}"
    argv = ["resume", str(folder)] if verb == "resume" else [verb, config]
    message = refused(argv, capsys)
    assert f"config.yaml: trainer.{section}" in message
    assert words in message
    assert "attacker_module" not in sys.modules


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("weights_only", False, "weights_only is false, which would unpickle a checkpoint"),
        ("ckpt_path", "https://example.org/a.ckpt", "ckpt_path is the address 'https://example.org/a.ckpt'"),
        ("ckpt_path", "registry:someone/model", "ckpt_path is the address 'registry:someone/model'"),
        ("config", "settings", "the key 'config' is not one of trainer, "),
        ("model", "settings", "model names 'settings'"),
        ("data", SYSTEM, "data names 'os.system'"),
        ("optimizer", SYSTEM, "optimizer names 'os.system'"),
        ("__path__", "settings", "the key '__path__' is not one of trainer, "),
        ("trainer.callbacks", [SYSTEM], "the key 'trainer.callbacks' is not one of trainer, "),
    ],
)
def test_payloads_in_other_sections(
    key: str, value: Any, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = poisoned_run(run, lambda settings: settings.update({key: value}))
    assert words in refused(["resume", str(folder)], capsys)


def test_a_file_in_the_working_directory_is_not_read_as_settings(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # where a class is expected, jsonargparse reads a string as a file name; every saved run has `accelerator: auto`
    shutil.copy("settings", "auto")
    assert "trainer.accelerator names 'auto', but" in refused(["resume", str(run)], capsys)


@pytest.mark.parametrize(
    "form",
    ["--config FILE", "--config=FILE", "-c FILE", "-cFILE", "second", "link", "capitals"],
)
def test_every_way_to_name_the_file(form: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = poisoned_run(run, lambda settings: settings["model"]["init_args"].update(encoder=SYSTEM))
    file = folder / "config.yaml"
    if form == "link":
        Path("link.yaml").symlink_to(file)
        form, file = "--config FILE", Path("link.yaml")
    if form == "capitals":
        form, file = "--config FILE", file.rename(folder / "Config.YAML")
    words = form.replace("FILE", str(file)).split()
    if form == "second":
        words = ["--config", "reviews_dp.yaml", "--config", str(file)]
    assert "model.init_args.encoder names 'os.system', but" in refused(["fit", *words], capsys)


@pytest.mark.parametrize("form", ["--conf FILE", "--conf=FILE", "--confi FILE"])
def test_an_abbreviated_option_names_no_file(form: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = form.replace("FILE", str(run / "config.yaml")).split()
    option = form.partition(" ")[0].partition("=")[0]
    assert f"there is no option {option}; did you mean --config?" in refused(["fit", *words], capsys)


def test_an_error_message_imports_nothing() -> None:
    # a report of jsonargparse quotes values of the file, which may look like a report
    report = "Problem with given class_path 'attacker_module.Anything':\n  Option 'a' is not accepted"
    assert parser_message(report) == "Option 'a' is not accepted"
    assert "attacker_module" not in sys.modules


def test_payloads_in_the_data_section(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = poisoned_run(run, lambda settings: settings.update(data=SYSTEM))
    argv = ["analyze", str(folder / "checkpoints" / "best.ckpt"), "--split", "val", "--count", "2"]
    assert "config.yaml: data names 'os.system', but" in refused(argv, capsys)


def test_a_loaded_task_keeps_its_model_config_and_builds_no_optimizer(run: Path) -> None:
    best = run / "checkpoints" / "best.ckpt"
    checkpoint = read_checkpoint(best)
    checkpoint["model_config"]["init_args"]["optimizer"] = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}}
    torch.save(checkpoint, "other.ckpt")
    task = load_task("other.ckpt")
    assert task.model_config == checkpoint["model_config"]
    optimizer = task.optimizer([torch.nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.Adam


USER_MODULE = """
from pathlib import Path

from fna_lightning.nn import Embedding
from fna_lightning.tasks import ReviewData


class MyData(ReviewData):
    pass


def my_embedding(vocab_size: int, dim: int) -> Embedding:
    Path("built").touch()
    return Embedding(vocab_size, dim)
"""


@pytest.fixture
def user_run(run: Path, working_directory: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run folder whose configuration names a class and a function of the user."""

    def change(settings: dict[str, Any]) -> None:
        settings["data"]["class_path"] = "my_own_module.MyData"
        settings["model"]["init_args"]["embedding"] = "my_own_module.my_embedding"

    (working_directory / "my_own_module.py").write_text(USER_MODULE)
    monkeypatch.delitem(sys.modules, "my_own_module", raising=False)
    folder = poisoned_run(run, change)
    shutil.rmtree(folder / "checkpoints")
    return folder


@pytest.mark.parametrize(
    "argv",
    [
        ["resume", "RUN", "--trust"],
        ["resume", "--trust", "RUN"],
        ["fit", "--trust", "--config=RUN/config.yaml", "--trainer.default_root_dir=out"],
    ],
    ids=" ".join,
)
def test_trust_allows_any_class(argv: list[str], user_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("RUN", str(user_run)) for word in argv]
    assert "names 'my_own_module." in refused([word for word in words if word != "--trust"], capsys)
    assert "my_own_module" not in sys.modules
    assert main(words) == 0
    assert "--trust: untrusted/version_0/config.yaml may run any code it names" in capsys.readouterr().err
    assert Path("built").exists()


def test_a_configuration_with_another_name_is_trusted(user_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (user_run / "config.yaml").rename("user.yaml")
    assert main(["fit", "--config=user.yaml", "--trainer.default_root_dir=out"]) == 0
    assert Path("built").exists()
    assert "--trust" not in capsys.readouterr().err
    (checkpoint,) = Path("out").glob("user/version_*/checkpoints/best.ckpt")
    Path("built").unlink()
    with pytest.raises(UsageError, match=r"model_config\.init_args\.embedding names 'my_own_module\.my_embedding'"):
        load_task(checkpoint)
    assert not Path("built").exists()
    load_task(checkpoint, trust=True)
    assert Path("built").exists()


def test_a_setting_on_the_command_line_is_trusted(
    run: Path, working_directory: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (working_directory / "my_own_module.py").write_text(USER_MODULE)
    sys.modules.pop("my_own_module", None)
    config = f"--config={run / 'config.yaml'}"
    more = ["--model.embedding=my_own_module.my_embedding", "--trainer.default_root_dir=out", "--trainer.max_epochs=1"]
    assert main(["fit", config, *more]) == 0, capsys.readouterr().err
    assert Path("built").exists()


def test_a_sweep_tests_the_models_that_it_trained(user_run: Path) -> None:
    (user_run / "config.yaml").rename("user.yaml")
    assert main(["sweep", "--config=user.yaml", "--set=trainer.max_epochs=1", "--out=grid"]) == 0
    (results,) = Path("grid").glob("*/seed_0/results.json")
    assert "test" in json.loads(results.read_text())


def test_a_checkpoint_cannot_delete_other_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning deletes the previous best checkpoint by the path in the state of its callback."""
    place, folder = tmp_path / "place", tmp_path / "run/version_0"
    (place / "valuable").mkdir(parents=True)
    (place / "valuable/thesis.tex").write_text("years of work")
    saver = ["--trainer.callbacks=ModelCheckpoint", f"--trainer.callbacks.dirpath={place}"]
    saver += ["--trainer.callbacks.monitor=val/loss", "--trainer.callbacks.mode=min"]
    assert fit(folder, monkeypatch, [*TASKS["text"], *COMMON, *saver, "--trainer.max_epochs=1"]) == 0
    last = folder / "checkpoints/last.ckpt"
    content = torch.load(last, weights_only=True)
    (key,) = (key for key in content["callbacks"] if key.startswith("ModelCheckpoint"))
    worst = torch.tensor(1e9)
    content["callbacks"][key] |= {
        "best_k_models": {str(place / "valuable"): worst},
        "kth_best_model_path": str(place / "valuable"),
        "kth_value": worst,
    }
    torch.save(content, last)
    assert main(["resume", str(folder), "--trainer.max_epochs=2"]) == 0
    assert (place / "valuable/thesis.tex").read_text() == "years of work"
