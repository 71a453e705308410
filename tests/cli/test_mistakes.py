"""Errors on the command line: one line on standard error, a nonzero exit code, a traceback only with --debug."""

from pathlib import Path

import pytest

from fna_lightning.cli import main
from fna_lightning.config.resolve import resolve_config_arguments, shipped_configs

pytestmark = pytest.mark.e2e

FIT = ["fit", "--config", "reviews_fna.yaml"]


def edited(tmp_path: Path, old: str, new: str) -> str:
    """Return a copy of the shipped configuration with one replacement."""
    text = shipped_configs()["reviews_fna.yaml"].read_text()
    assert old in text
    path = tmp_path / "edited.yaml"
    path.write_text(text.replace(old, new, 1))
    return str(path)


def error_line(capsys: pytest.CaptureFixture[str], argv: list[str]) -> str:
    """Run a command that must fail and return its error message."""
    assert main(argv) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    errors = [line for line in lines if line.startswith("fna-lightning: error:")]
    assert len(errors) == 1, lines
    assert not any("Traceback" in line for line in lines)
    return errors[0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--model.attention.alpha=0.5"],
            "alpha must lie in [1, 2] (2 is the Gaussian, smaller reaches further), got 0.5",
        ),
        (["--model.attention.alpha=3"], "got 3.0"),
        (["--model.attention.alpha=many"], "attention.alpha: Expected a float. Got value: many"),
        (
            ["--model.attention.kappa=-1"],
            "kappa must be positive and finite, got -1.0; give a positive number or one of",
        ),
        (["--model.attention.kernel=warp"], "unknown kernel 'warp'; choose one of auto"),
        (["--model.attention.kernel=sdpa"], "kernel 'sdpa' cannot run here"),
        (["--model.encoder.num_heads=5"], "dim (64) must be a multiple of num_heads (5)"),
        (["--data.batch_size=0"], "batch_size must be at least 1, got 0"),
        (["--model.attention=Fractoinal"], "did you mean 'Fractional'?"),
        (["--trainer.max_epohcs=3"], "Option 'trainer.max_epohcs' is not accepted; did you mean 'max_epochs'?"),
    ],
    ids=str,
)
def test_wrong_values_are_named(
    arguments: list[str],
    message: str,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    assert message in error_line(capsys, [*FIT, *arguments, "--trainer.fast_dev_run=true"])


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "alpha: 1.2",
            "alhpa: 1.2",
            "model.attention: Option 'alhpa' is not accepted; did you mean 'alpha'? It takes alpha, kappa",
        ),
        ("pooling: max", "poling: max", "Option 'poling' is not accepted; did you mean 'pooling'?"),
        ("max_epochs:", "max_epoch:", "'trainer.max_epoch'; did you mean 'max_epochs'?"),
        ("class_path: ReviewData", "class_path: ReviewDta", "ReviewDta; did you mean 'ReviewData'?"),
        ("trainer:", "trainr:", "'trainr.max_epochs'"),
        ("seed_everything: 0", "seed_everything: [0", "line 3, column 18"),
    ],
    ids=str,
)
def test_a_misspelled_name_gets_a_suggestion(
    old: str, new: str, message: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert message in error_line(capsys, ["fit", "--config", edited(tmp_path, old, new)])


def test_an_unknown_config_lists_the_shipped_configs(capsys: pytest.CaptureFixture[str]) -> None:
    message = error_line(capsys, ["fit", "--config", "reviews_fan.yaml"])
    assert "no config 'reviews_fan.yaml': not a file, and not one of the shipped" in message
    assert "reviews_fna.yaml" in message


def test_an_unknown_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fiit"]) == 2
    assert "invalid choice: 'fiit'" in capsys.readouterr().err


def test_a_missing_checkpoint_is_named(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "gone.ckpt" in error_line(capsys, ["test", "--config", "reviews_fna.yaml", "--ckpt_path=gone.ckpt"])


@pytest.mark.parametrize("source", ["flag", "variable"])
def test_debug_shows_the_traceback(
    source: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if source == "variable":
        monkeypatch.setenv("FNA_DEBUG", "1")
    assert main([*FIT, "--model.attention.alpha=0.5", *(["--debug"] if source == "flag" else [])]) != 0
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
