"""Checkpoints, exported folders and run folders that name code: every command refuses them before it runs."""

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
from fna_lightning.config.messages import one_line
from fna_lightning.errors import UsageError

from helpers.interrupted import COMMON, TASKS, fit
from helpers.tiny_runs import train_tiny
from helpers.tiny_translation import train_tiny_translation

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
    "text of YAML": "{class_path: os.system, init_args: {command: touch PWNED}}",
    "file": "settings",
    "path of a module": "attacker_module.anything",
    "class": {"class_path": "subprocess.Popen", "init_args": {"args": ["touch", "PWNED"]}},
}
PLACES = ("attention", "encoder", "embedding", "optimizer", "lr_scheduler")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished run of a text classifier."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny(tmp_path_factory.mktemp("run"), "--trainer.callbacks=[]").parents[1]


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint of a translator."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("FNA_RUN_DIR", "")
        return train_tiny_translation(tmp_path_factory.mktemp("translator"), "trainer.max_epochs=1")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An own working directory, with what some payloads need in it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_RUN_DIR", "")
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "script.py").write_text("open('PWNED', 'w')")
    (tmp_path / "attacker_module.py").write_text("open('PWNED', 'w')")
    (tmp_path / "settings").write_text(yaml.safe_dump(SYSTEM))
    return tmp_path


def poisoned_checkpoint(good: Path, payload: Any, *place: str) -> Path:
    """Return a copy of a checkpoint with a payload in its model_config."""
    checkpoint = read_checkpoint(good)
    _put(checkpoint["model_config"]["init_args"], payload, place)
    torch.save(checkpoint, "bad.ckpt")
    return Path("bad.ckpt")


def poisoned_run(good: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """Return a copy of a run folder with another configuration."""
    folder = Path("theirs") / "version_0"
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
    """Return the one sentence with which a command is refused."""
    capsys.readouterr()
    assert main(argv) == 2
    (line,) = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("resuming ")]
    assert line.startswith("fna-lightning: error: ")
    assert not Path("PWNED").exists()
    return line


def test_six_commands(
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
        sentence = refused(argv, capsys)
        assert "config.yaml: model.init_args.optimizer names 'os.system', but" in sentence
        assert sentence.endswith("add --trust if you know who wrote the file")


def test_an_exported_folder(run: Path, here: Path) -> None:
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
def test_a_recipe_calls_nothing(place: str, payload: str, run: Path) -> None:
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
def test_a_schedule_takes_no_function(schedule: str, parameter: str, payload: Any, run: Path) -> None:
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
def test_a_key_with_dots_reaches_nowhere(change: dict[str, Any], run: Path) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.ckpt")
    arguments = checkpoint["model_config"]["init_args"]
    (place,) = {key.partition(".")[0] for key in change}
    del arguments[place]
    arguments.update(change)
    torch.save(checkpoint, "bad.ckpt")
    with pytest.raises(UsageError, match="which is not the name of a parameter"):
        load_task("bad.ckpt")
    assert not Path("PWNED").exists()


def test_extra_arguments_call_nothing(run: Path) -> None:
    checkpoint = read_checkpoint(run / "checkpoints" / "best.ckpt")
    del checkpoint["model_config"]["init_args"]["encoder"]
    checkpoint["model_config"]["dict_kwargs"] = {"encoder": SYSTEM}
    torch.save(checkpoint, "bad.ckpt")
    with pytest.raises(UsageError, match=r"model_config\.dict_kwargs\.encoder names 'os\.system'"):
        load_task("bad.ckpt")
    assert not Path("PWNED").exists()


def test_a_recipe_holds_plain_values(run: Path) -> None:
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
def test_a_trainer_of_a_run_folder(
    verb: str, section: str, value: Any, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = poisoned_run(run, lambda settings: settings["trainer"].update({section: value}))
    config = f"--config={folder / 'config.yaml'}"
    argv = ["resume", str(folder)] if verb == "resume" else [verb, config]
    sentence = refused(argv, capsys)
    assert f"config.yaml: trainer.{section}" in sentence
    assert words in sentence
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
def test_other_parts_of_a_run_folder(
    key: str, value: Any, words: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = poisoned_run(run, lambda settings: settings.update({key: value}))
    assert words in refused(["resume", str(folder)], capsys)


def test_a_file_in_the_working_directory_is_no_setting(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # a text where a class is expected may be the name of a file of settings; every saved run says `strategy: auto`
    shutil.copy("settings", "auto")
    assert "trainer.accelerator names 'auto', but" in refused(["resume", str(run)], capsys)


@pytest.mark.parametrize(
    "form",
    ["--config FILE", "--config=FILE", "--conf FILE", "--conf=FILE", "-c FILE", "-cFILE", "second", "link", "capitals"],
)
def test_however_it_is_named(form: str, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = poisoned_run(run, lambda settings: settings["model"]["init_args"].update(encoder=SYSTEM))
    file = folder / "config.yaml"
    if form == "link":
        Path("mine.yaml").symlink_to(file)
        form, file = "--config FILE", Path("mine.yaml")
    if form == "capitals":
        form, file = "--config FILE", file.rename(folder / "Config.YAML")
    words = form.replace("FILE", str(file)).split()
    if form == "second":
        words = ["--config", "reviews_dp.yaml", "--config", str(file)]
    assert "model.init_args.encoder names 'os.system', but" in refused(["fit", *words], capsys)


def test_a_report_of_a_mistake_imports_nothing() -> None:
    # a report quotes values of the file, and these may look like a report
    report = "Problem with given class_path 'attacker_module.Anything':\n  Option 'a' is not accepted"
    assert one_line(report) == "Option 'a' is not accepted"
    assert "attacker_module" not in sys.modules


def test_the_data_of_a_run_folder(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = poisoned_run(run, lambda settings: settings.update(data=SYSTEM))
    argv = ["analyze", str(folder / "checkpoints" / "best.ckpt"), "--split", "val", "--count", "2"]
    assert "config.yaml: data names 'os.system', but" in refused(argv, capsys)


def test_a_loaded_task_keeps_its_recipe_and_builds_no_optimiser(run: Path) -> None:
    best = run / "checkpoints" / "best.ckpt"
    checkpoint = read_checkpoint(best)
    checkpoint["model_config"]["init_args"]["optimizer"] = {"class_path": "torch.optim.SGD", "init_args": {"lr": 0.5}}
    torch.save(checkpoint, "other.ckpt")
    task = load_task("other.ckpt")
    assert task.model_config == checkpoint["model_config"]
    optimizer = task.optimizer([torch.nn.Parameter(torch.zeros(1))])
    assert type(optimizer) is torch.optim.Adam


MINE = """
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
def mine(run: Path, here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run folder whose configuration names a class and a function of its author."""

    def change(settings: dict[str, Any]) -> None:
        settings["data"]["class_path"] = "my_own_module.MyData"
        settings["model"]["init_args"]["embedding"] = "my_own_module.my_embedding"

    (here / "my_own_module.py").write_text(MINE)
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
def test_trust_lifts_the_list(argv: list[str], mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [word.replace("RUN", str(mine)) for word in argv]
    assert "names 'my_own_module." in refused([word for word in words if word != "--trust"], capsys)
    assert "my_own_module" not in sys.modules
    assert main(words) == 0
    assert "--trust: theirs/version_0/config.yaml may run any code it names" in capsys.readouterr().err
    assert Path("built").exists()


def test_a_configuration_of_another_name_is_its_authors(mine: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (mine / "config.yaml").rename("mine.yaml")
    assert main(["fit", "--config=mine.yaml", "--trainer.default_root_dir=out"]) == 0
    assert Path("built").exists()
    assert "--trust" not in capsys.readouterr().err
    (checkpoint,) = Path("out").glob("mine/version_*/checkpoints/best.ckpt")
    Path("built").unlink()
    with pytest.raises(UsageError, match=r"model_config\.init_args\.embedding names 'my_own_module\.my_embedding'"):
        load_task(checkpoint)
    assert not Path("built").exists()
    load_task(checkpoint, trust=True)
    assert Path("built").exists()


def test_a_setting_of_the_command_line_is_the_users(run: Path, here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "my_own_module.py").write_text(MINE)
    sys.modules.pop("my_own_module", None)
    config = f"--config={run / 'config.yaml'}"
    more = ["--model.embedding=my_own_module.my_embedding", "--trainer.default_root_dir=out", "--trainer.max_epochs=1"]
    assert main(["fit", config, *more]) == 0, capsys.readouterr().err
    assert Path("built").exists()


def test_a_sweep_tests_what_it_has_trained(mine: Path) -> None:
    (mine / "config.yaml").rename("mine.yaml")
    assert main(["sweep", "--config=mine.yaml", "--set=trainer.max_epochs=1", "--out=grid"]) == 0
    (results,) = Path("grid").glob("*/seed_0/results.json")
    assert "test" in json.loads(results.read_text())


def test_a_checkpoint_cannot_have_other_files_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lightning removes the checkpoint that was best before, by the path that the state of its callback names."""
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
