"""Errors on the command line: one line on standard error, a nonzero exit code, a traceback only with --debug."""

import zipfile
from pathlib import Path

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.config.resolve import resolve_config_arguments, shipped_configs

pytestmark = pytest.mark.e2e

FIT = ["fit", "--config", "reviews_fna.yaml"]
SMALL = ["--data.train_size=64", "--data.eval_size=32", "--data.longest=40"]
TRY = [*FIT, *SMALL, "--trainer.fast_dev_run=true"]
ALPHA = "model.attention.alpha must lie in [1, 2] (2 is the Gaussian, smaller reaches further), got 3.0"
ATTENTIONS = "choose one of DotProduct, Fractional, Spherical, StudentT, Uniform, or write package.module.Class"
FRACTIONAL = "It takes alpha, kappa, intrinsic_dim, dropout, exclude_self, density_power, kernel, learn"
EXAMPLE = "runs/reviews_fna/version_0/checkpoints/best.ckpt"
NEEDS_CONFIG = "--config needs a file or the name of a shipped configuration, for example --config reviews_fna.yaml"
LIST = "`fna-lightning list` names them all"


@pytest.fixture(autouse=True)
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Run in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def edited(old: str, new: str) -> str:
    """Return a copy of the shipped configuration with one replacement."""
    text = shipped_configs()["reviews_fna.yaml"].read_text()
    assert old in text
    Path("edited.yaml").write_text(text.replace(old, new, 1))
    return "edited.yaml"


def error_line(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    """Run a command that must fail and return its error message."""
    assert main(argv) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    errors = [line for line in lines if line.startswith("fna-lightning: error:")]
    assert len(errors) == 1, lines
    assert not any("Traceback" in line for line in lines)
    return errors[0].removeprefix("fna-lightning: error: ")


# settings that a constructor refuses: its own message, after the name of the setting
REFUSED = {
    "--model.attention.alpha=3": ALPHA,
    "--alpha 3": ALPHA,
    "--model.attention={class_path: Fractional, init_args: {alpha: 3}}": ALPHA,
    "--model.encoder.num_heads=5": "model: dim (64) must be a multiple of num_heads (5); change one of them",
    "--batch-size 0": "data.batch_size must be at least 1, got 0",
    "--data.batch_size=-4": "data.batch_size must be at least 1, got -4",
    "--lr -1": "model.optimizer: Invalid learning rate: -1.0",
    "--model.lr_scheduler=WarmupCosine --model.lr_scheduler.warmup=-3": (
        "model.lr_scheduler.warmup must be a fraction of all steps in [0, 1), got -3.0"
    ),
    "--trainer.callbacks+=AttentionGraph --trainer.callbacks.max_length=-3": (
        "trainer.callbacks[1].max_length must be at least 2, got -3"
    ),
    "--model.embedding.positions=learnt": (
        "model: unknown positions 'learnt'; choose one of learned, sinusoidal, random, none"
    ),
}
# settings that the parser refuses
WRONG = {
    "--model.attention.alpha=many": "model.attention.alpha: expected float, got 'many'",
    "--alpha many": "--alpha: expected float, got 'many'",
    "--epochs ten": "--epochs: expected int, got 'ten'",
    "--trainer.max_epochs ten": "trainer.max_epochs: expected int, got 'ten'",
    "--trainer.fast_dev_run=maybe": "trainer.fast_dev_run: expected int or bool, got 'maybe'",
    "--batch-size 8.5": "--batch-size: expected int, got '8.5'",
    "--model.optimizer.betas=3": "model.optimizer.betas: expected tuple, got '3'",
    "--alpha": "--alpha needs a value: exponent of the attention, 1 to 2; 2 is the Gaussian",
    "--ckpt_path": "--ckpt_path needs a value",
    "--model.attention=Fractoinal": (
        f"model.attention: there is no class 'Fractoinal'; did you mean 'Fractional'? C{ATTENTIONS[1:]}"
    ),
    "--model.attention=Free": f"model.attention: there is no class 'Free'; {ATTENTIONS}",
    "--model.encoder.projection=Free": (
        "model.encoder.projection: there is no class 'Free'; choose one of LinearProjection, OrthogonalProjection, or "
        "write package.module.Class"
    ),
    "--model.optimizer=Adamm": (
        "model.optimizer: there is no class 'Adamm'; did you mean 'Adam'? Write other classes as package.module.Class"
    ),
    "--model.optimizer=torch.optim.Adamm": (
        "model.optimizer: torch.optim has no class 'Adamm'; did you mean torch.optim.Adam?"
    ),
    "--trainer.callbacks+=AttentionGrap": (
        "trainer.callbacks: there is no class 'AttentionGrap'; did you mean 'AttentionGraph'? `fna-lightning list` "
        "names the classes; write other classes as package.module.Class"
    ),
    "--model.lr_scheduler=torch.optim.lr_scheduler.StepLR": (
        "model.lr_scheduler: the required setting step_size is missing; add --model.lr_scheduler.step_size=VALUE"
    ),
    "--trainer.max_epoch 3": "there is no option --trainer.max_epoch; did you mean --epochs (trainer.max_epochs)?",
    "--trainer.max_epohcs=3": "there is no option --trainer.max_epohcs; did you mean --epochs (trainer.max_epochs)?",
    "--trainer.device 2": "there is no option --trainer.device; did you mean --trainer.devices?",
    "--aplha 1.5": "there is no option --aplha; did you mean --alpha (model.attention.alpha)?",
    "--learning_rate 1e-3": "there is no option --learning_rate; did you mean --lr (model.optimizer.lr)?",
    "--learning-rate 1e-3": "there is no option --learning-rate; did you mean --lr (model.optimizer.lr)?",
    "--batch_size 8": "there is no option --batch_size; did you mean --batch-size (data.batch_size)?",
    "--max_epochs 8": "there is no option --max_epochs; did you mean --epochs (trainer.max_epochs)?",
    "--kernel sdpa": "there is no option --kernel; did you mean --model.attention.kernel?",
    "--depth 3": "there is no option --depth; did you mean --model.encoder.depth?",
    "--num_workers 3": "there is no option --num_workers; did you mean --data.num_workers?",
    "--nonsense 8": "there is no option --nonsense; --help-all lists the options",
    "stray": "unexpected argument 'stray'; a setting is written as --name value",
    "--model.lr 1": "model: Option 'lr' is not accepted; did you mean --lr (model.optimizer.lr)?",
    "--model.alpha 1": "model: Option 'alpha' is not accepted; did you mean --alpha (model.attention.alpha)?",
    "--model.optimizer.lrr 1": (
        "model.optimizer: Option 'lrr' is not accepted; did you mean 'lr'? It takes lr, betas, eps, weight_decay, "
        "amsgrad, foreach, maximize, capturable, differentiable, fused, decoupled_weight_decay"
    ),
    "--model.attention.aplha 1.5": (
        f"model.attention: Option 'aplha' is not accepted; did you mean 'alpha'? {FRACTIONAL}"
    ),
    "--model.attention=DotProduct --model.attention.alpha=1.5": (
        "model.attention: Option 'alpha' is not accepted; it takes scale, qk_norm, ssmax, dropout, "
        "exclude_self, density_power, kernel, learn"
    ),
}


@pytest.mark.parametrize(("arguments", "message"), (REFUSED | WRONG).items(), ids=str)
def test_wrong_settings(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = [arguments] if "{" in arguments else arguments.split()
    assert error_line(capsys, [*TRY, *words]) == message


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("alpha: 1.2", "alpha: 3", ALPHA),
        ("alpha: 1.2", "alpha: many", "model.attention.alpha: expected float, got 'many'"),
        (
            "alpha: 1.2",
            "alhpa: 1.2",
            f"model.attention: Option 'alhpa' is not accepted; did you mean 'alpha'? {FRACTIONAL}",
        ),
        ("class_path: Fractional", "class_path: Free", f"model.attention: there is no class 'Free'; {ATTENTIONS}"),
        (
            "class_path: torch.optim.Adam",
            "class_path: torch.optim.Adamm",
            "model.optimizer: torch.optim has no class 'Adamm'; did you mean torch.optim.Adam?",
        ),
        (
            "pooling: max",
            "poling: max",
            (
                "model: Option 'poling' is not accepted; did you mean 'pooling'? It takes vocab_size, num_classes, "
                "attention, encoder, embedding, pooling, optimizer, lr_scheduler, softmax_twice, linear"
            ),
        ),
        ("max_epochs:", "max_epoch:", "Option 'trainer.max_epoch' is not accepted; did you mean 'max_epochs'?"),
        (
            "seed_everything:",
            "seed_everythin:",
            (
                "Option 'seed_everythin' is not accepted; did you mean 'seed_everything'? It takes seed_everything, "
                "trainer, model, data, logger, compile, ckpt_path"
            ),
        ),
        (
            "seed_everything: 0",
            "seed_everything: [0",
            (
                "edited.yaml is not valid YAML: while parsing a flow sequence at line 3, column 18, did not find "
                "expected ',' or ']' at line 5, column 6"
            ),
        ),
    ],
    ids=str,
)
def test_wrong_configurations(old: str, new: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert error_line(capsys, ["fit", "--config", edited(old, new), *SMALL]) == message


def test_a_missing_class_of_the_data_names_the_data_modules(capsys: pytest.CaptureFixture[str]) -> None:
    message = error_line(capsys, ["fit", "--config", edited("class_path: ReviewData", "class_path: ReviewDta")])
    assert message.startswith("data: there is no class 'ReviewDta'; did you mean 'ReviewData'? ")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--config", NEEDS_CONFIG),
        ("--config=", NEEDS_CONFIG),
        ("--config --alpha 3", NEEDS_CONFIG),
        (
            "",
            (
                "the settings data and model are missing; name a configuration that has them, for example --config "
                "reviews_fna.yaml"
            ),
        ),
        (
            "--config imdb_fan.yaml",
            "there is no file 'imdb_fan.yaml' and no shipped configuration of that name; did you mean imdb_fna.yaml? "
            + LIST,
        ),
        (
            "--config imdb_fan",
            "there is no file 'imdb_fan' and no shipped configuration of that name; did you mean imdb_fna.yaml? "
            + LIST,
        ),
        ("--config my/x.yaml", f"there is no file 'my/x.yaml' and no shipped configuration of that name; {LIST}"),
        ("--config folder", "'folder' is a folder, and --config takes a file; use a YAML file in it"),
        ("--config run", "'run' is a folder, and --config takes a file; use run/config.yaml"),
        ("--config notes.txt", "notes.txt is not a configuration: it has no settings such as model, data and trainer"),
    ],
    ids=str,
)
def test_wrong_configuration_names(arguments: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("folder").mkdir()
    Path("run").mkdir()
    Path("run/config.yaml").write_text("model: {}")
    Path("notes.txt").write_text("some notes")
    assert error_line(capsys, ["fit", *arguments.split()]) == message


FILES = {
    "text.ckpt": f"text.ckpt is not a checkpoint: it is a text file; give a file such as {EXAMPLE}",
    "empty.ckpt": f"empty.ckpt is not a checkpoint: it is empty; copy it again, or give a file such as {EXAMPLE}",
    "zip.ckpt": (
        "zip.ckpt is not a checkpoint: it is a zip archive without the record data.pkl, which torch.save writes; give "
        "another file"
    ),
    "my.yaml": (
        f"my.yaml is a configuration, not a checkpoint; pass it with --config, and give a file such as {EXAMPLE} here"
    ),
    "gone.ckpt": f"there is no checkpoint 'gone.ckpt'; give a run folder, or a file such as {EXAMPLE}",
    "folder": (
        "folder is a folder without checkpoints/best.ckpt and checkpoints/last.ckpt; give the folder of a run that has "
        f"saved a checkpoint, or a file such as {EXAMPLE}"
    ),
}


@pytest.mark.parametrize(("file", "message"), FILES.items(), ids=str)
def test_files_that_are_not_checkpoints(file: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("text.ckpt").write_text("some text")
    Path("empty.ckpt").touch()
    with zipfile.ZipFile("zip.ckpt", "w") as archive:
        archive.writestr("notes.txt", "some text")
    Path("my.yaml").write_text("model: {}")
    Path("folder").mkdir()
    for command in (["test", "--config", "reviews_fna.yaml", "--ckpt_path"], ["classify"], ["analyze"], ["translate"]):
        assert error_line(capsys, [*command, file]) == message, command
    assert error_line(capsys, ["export", file, "out"]) == message


def test_the_configuration_of_a_run_instead_of_its_checkpoint(
    empty_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    best = empty_folder / "checkpoints" / "best.ckpt"
    best.parent.mkdir()
    best.touch()
    Path("config.yaml").write_text("model: {}")
    assert error_line(capsys, ["classify", "config.yaml"]) == (
        f"config.yaml is a configuration, not a checkpoint; pass it with --config, and give {best} here"
    )


def test_resume_of_a_checkpoint_names_the_run_folder(empty_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("checkpoints").mkdir()
    Path("checkpoints/last.ckpt").touch()
    Path("config.yaml").touch()
    assert error_line(capsys, ["resume", "checkpoints/last.ckpt"]) == (
        f"checkpoints/last.ckpt is a file; give the folder of a run, e.g. {empty_folder}"
    )


def test_a_bug_in_a_constructor_is_not_a_mistake_of_the_user(capsys: pytest.CaptureFixture[str]) -> None:
    from tests.helpers.plugin_classes import __name__ as module

    settings = yaml.safe_load(shipped_configs()["reviews_fna.yaml"].read_text())
    settings["data"] = {"class_path": f"{module}.BrokenData", "init_args": {"size": 3}}
    Path("broken.yaml").write_text(yaml.safe_dump(settings))
    assert error_line(capsys, ["fit", "--config", "broken.yaml"]) == "data: KeyError: 'key' (--debug shows where)"


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fiit"]) == 2
    assert "invalid choice: 'fiit'" in capsys.readouterr().err


def test_options_of_other_commands_cannot_be_abbreviated(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["analyze", "best.ckpt", "--max-len", "3"]) == 2
    assert "unrecognized arguments: --max-len 3" in capsys.readouterr().err


@pytest.mark.parametrize("source", ["flag", "variable"])
def test_debug_shows_the_traceback(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "variable":
        monkeypatch.setenv("FNA_DEBUG", "1")
    assert main([*FIT, *SMALL, "--model.attention.alpha=0.5", *(["--debug"] if source == "flag" else [])]) != 0
    printed = capsys.readouterr().err
    assert "Traceback (most recent call last)" in printed
    assert "alpha must lie in [1, 2]" in printed


@pytest.mark.parametrize(
    "argv",
    [
        ["--config", "reviews_fna.yaml"],
        ["--config=reviews_fna.yaml"],
        ["-c", "reviews_fna.yaml"],
        ["-creviews_fna"],
        ["-c", "reviews_fna"],
    ],
    ids=str,
)
def test_a_bare_name_finds_a_shipped_config(argv: list[str]) -> None:
    resolved = resolve_config_arguments(["fit", *argv, "--trainer.max_epochs=1"])
    assert resolved[0] == "fit"
    assert resolved[-1] == "--trainer.max_epochs=1"
    assert resolved[-2].removeprefix("--config=") == str(shipped_configs()["reviews_fna.yaml"])
