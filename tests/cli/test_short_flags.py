"""Short flags of ``fit`` and the other training commands, and the warning about replaced callbacks."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.training.run_folder import RUN_DIR_VARIABLE
from tests.helpers import plugin_classes
from tests.helpers.tiny_runs import train_tiny

pytestmark = pytest.mark.e2e

ALL = "--alpha 1.5 --kappa 0.5 --lr 1e-2 --epochs 7 --batch-size 9 --seed 3"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder, without an inherited run folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")
    return tmp_path


def printed_config(capsys: pytest.CaptureFixture[str], words: str, verb: str = "fit") -> dict[str, Any]:
    """Return the configuration that a command line resolves to."""
    assert main([verb, *words.split(), "--print_config"]) == 0
    return yaml.safe_load(capsys.readouterr().out)


def error(capsys: pytest.CaptureFixture[str], words: str, verb: str = "fit") -> str:
    """Return the message of a command line that must fail."""
    assert main([verb, *words.split()]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line.removeprefix("fna-lightning: error: ")


@pytest.mark.parametrize(
    "words",
    [
        f"--config reviews_fna.yaml {ALL}",
        f"{ALL} --config reviews_fna.yaml",
        f"--config digits_fna.yaml {ALL}",
        f"--config multi30k_fna.yaml {ALL}",
        f"--alpha=1.5 --kappa=0.5 {ALL} --config reviews_fna.yaml --model.attention.alpha 1.1 --seed_everything 1",
    ],
    ids=str,
)
def test_short_flags_override_the_configuration_in_any_order(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = printed_config(capsys, words)
    model = config["model"]["init_args"]
    assert model["attention"]["init_args"]["alpha"] == 1.5
    assert model["attention"]["init_args"]["kappa"] == 0.5
    assert model["optimizer"]["init_args"]["lr"] == 0.01
    assert config["trainer"]["max_epochs"] == 7
    assert config["data"]["init_args"]["batch_size"] == 9
    assert config["seed_everything"] == 3


@pytest.mark.parametrize("rule", ["auto", "text", "vision", "sphere"])
def test_kappa_may_be_a_rule(rule: str, capsys: pytest.CaptureFixture[str]) -> None:
    config = printed_config(capsys, f"--config reviews_fna.yaml --kappa {rule}")
    assert config["model"]["init_args"]["attention"]["init_args"]["kappa"] == rule


def write_plugin_config(**model: Any) -> None:
    """Write plugin.yaml, a configuration with settings at unusual places."""
    module = plugin_classes.__name__
    data = {"class_path": f"{module}.NestedData"}
    Path("plugin.yaml").write_text(yaml.safe_dump({"model": model, "data": data}))


def test_the_long_names_of_a_plugin_are_looked_up(capsys: pytest.CaptureFixture[str]) -> None:
    attentions = {"attention": {"class_path": "Fractional"}, "cross_attention": {"class_path": "Fractional"}}
    write_plugin_config(
        class_path=f"{plugin_classes.__name__}.NestedTask", init_args={"backbone": attentions, "lr": 0.5}
    )
    config = printed_config(capsys, f"--config plugin.yaml {ALL}")
    model = config["model"]["init_args"]
    assert model["lr"] == 0.01
    for name in attentions:
        assert model["backbone"][name]["init_args"]["alpha"] == 1.5
    assert config["data"]["init_args"]["loading"]["batch_size"] == 9
    assert config["trainer"]["max_epochs"] == 7


def test_flags_that_a_plugin_does_not_have(capsys: pytest.CaptureFixture[str]) -> None:
    write_plugin_config(class_path=f"{plugin_classes.__name__}.PlainTask")
    assert error(capsys, "--config plugin.yaml --alpha 1.5") == (
        "PlainTask has no setting for its attention, so --alpha does not apply"
    )
    assert error(capsys, "--config plugin.yaml --lr 1") == ("PlainTask has no learning rate lr, so --lr does not apply")


@pytest.mark.parametrize(
    ("verb", "words", "message"),
    [
        (
            "fit",
            "--config reviews_dp.yaml --alpha 1.5",
            "attention DotProduct has no alpha; omit --alpha, or add --model.attention Fractional",
        ),
        (
            "fit",
            "--config reviews_fna.yaml --model.attention Uniform --kappa text",
            "attention Uniform has no kappa; omit --kappa, or add --model.attention Fractional",
        ),
        (
            "fit",
            "--config numbers_fna.yaml --batch-size 8",
            (
                "NumberData fills each batch up to data.batch_tokens (2048) tokens, so --batch-size does not apply; "
                "use --data.batch_tokens"
            ),
        ),
        (
            "test",
            "--config reviews_fna.yaml --lr 1",
            "--lr applies to training only, and test does not train; omit it",
        ),
        (
            "sweep",
            "--config reviews_fna.yaml --batch-size 8",
            "sweep has no --batch-size; --set batch-size=8 sets it in every run, and --grid batch-size=A,B varies it",
        ),
        (
            "sweep",
            "--config reviews_fna.yaml --seed 8",
            "sweep has no --seed; --seeds N trains with the seeds 0 to N - 1",
        ),
    ],
    ids=str,
)
def test_flags_that_do_not_apply(verb: str, words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error(capsys, words, verb) == message


def test_a_run_folder_is_accepted_as_its_checkpoint(
    empty_folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """config.yaml has the long names; test, classify, export and fit take the run folder."""
    best = train_tiny(Path("runs"), "--lr=0.01", "--seed", "4")
    run = best.parents[1]
    saved = yaml.safe_load((run / "config.yaml").read_text())
    assert saved["model"]["init_args"]["optimizer"]["init_args"]["lr"] == 0.01
    assert saved["seed_everything"] == 4
    capsys.readouterr()
    monkeypatch.setenv(RUN_DIR_VARIABLE, "")
    test = ["test", f"--config={run / 'config.yaml'}", f"--ckpt_path={run}", "--batch-size", "8"]
    commands = {
        "best.ckpt": [test, ["classify", str(run), "a fine film"], ["export", str(run), "published"]],
        "last.ckpt": [["fit", f"--config={run / 'config.yaml'}", f"--ckpt_path={run}", "--epochs=2"]],
    }
    for name, lines in commands.items():
        for command in lines:
            assert main(command) == 0
            assert f"{run} is a folder; using {run / 'checkpoints' / name}" in capsys.readouterr().err.splitlines()
    best.unlink()
    assert main(["classify", str(run / "checkpoints"), "a fine film"]) == 0
    assert f"using {run / 'checkpoints' / 'last.ckpt'}" in capsys.readouterr().err
    assert "test" in (run / "results.json").read_text()


WARNING = "--trainer.callbacks replaced the callbacks of the configuration (AttentionGraph); to keep them, use "


@pytest.mark.parametrize(
    ("option", "warnings"),
    [
        ("--trainer.callbacks=EarlyStopping --trainer.callbacks.monitor=val/loss", 1),
        ("--trainer.callbacks EarlyStopping --trainer.callbacks.monitor val/loss", 1),
        ("--trainer.callbacks+=EarlyStopping --trainer.callbacks.monitor=val/loss", 0),
        ("--trainer.callbacks=null", 0),
        ("--trainer.max_epochs=1", 0),
    ],
)
def test_replaced_callbacks_are_named(option: str, warnings: int, capsys: pytest.CaptureFixture[str]) -> None:
    Path("callbacks.yaml").write_text("trainer: {callbacks: [{class_path: AttentionGraph}]}")
    configs = ["--config=reviews_dp.yaml", "--config=callbacks.yaml", "--data.train_size=64", "--data.eval_size=32"]
    assert main(["fit", *configs, *option.split(), "--trainer.fast_dev_run=true"]) == 0
    lines = capsys.readouterr().err.splitlines()
    assert lines.count(f"{WARNING}--trainer.callbacks+=EarlyStopping") == warnings
    assert sum("replaced the callbacks" in line for line in lines) == warnings
