"""`bench train`: ratios and profiles are consistent."""

import argparse
import json

import pytest

from fna_lightning.bench import train as bench_train
from fna_lightning.config.instantiate import from_config
from fna_lightning.errors import UsageError

pytestmark = pytest.mark.e2e

SMALL = ["data.train_size=64", "data.longest=40", "data.batch_size=8"]


def bench(*words: str) -> int:
    parser = argparse.ArgumentParser()
    bench_train.add_arguments(parser)
    return bench_train.run(parser.parse_args([*words, *(word for setting in SMALL for word in ("--set", setting))]))


def test_ratios_and_profiles_are_consistent(tmp_path, capsys) -> None:
    file = tmp_path / "times.json"
    words = ["--config", "reviews_uniform.yaml", "--against", "reviews_dp.yaml", "--steps", "3", "--repeats", "3"]
    assert bench(*words, "--warmup", "1", "--json", str(file)) == 0
    report = json.loads(file.read_text())
    uniform, dp = report["configs"]["reviews_uniform"], report["configs"]["reviews_dp"]
    ratio = report["ratios"]["reviews_uniform / reviews_dp"]
    paired = sorted(a / b for a, b in zip(uniform["blocks"], dp["blocks"], strict=True))
    assert [ratio["smallest"], ratio["median"], ratio["largest"]] == pytest.approx(paired)
    assert ratio["same_batches"]
    for config in (uniform, dp):
        assert len(config["blocks"]) == 3
        assert set(config["profile"]) == {"data", "forward", "backward", "optimizer", "lightning"}
        assert all(seconds > 0 for seconds in config["profile"].values())
        assert config["epoch_seconds"] == pytest.approx(8 * config["step_seconds"])
    assert report["kernels"]["DotProduct()"] == "sdpa"
    printed = capsys.readouterr().out
    assert f"reviews_uniform / reviews_dp: {ratio['median']:.2f}" in printed


def test_phases_of_a_block_add_up_to_its_time() -> None:
    config = bench_train.TimedConfig.build("reviews_dp.yaml", SMALL)
    block = config.train_block(4)
    assert sum(seconds for phase, seconds in block.items() if phase != "step") == pytest.approx(block["step"])
    assert block["forward"] + block["backward"] > block["data"]
    # The clock restores the task.
    assert "loss" not in vars(config.task)


def test_a_schedule_that_needs_validation_is_left_out() -> None:
    plateau = ["model.lr_scheduler=lightning.pytorch.cli.ReduceLROnPlateau", "model.lr_scheduler.monitor=val/loss"]
    config = bench_train.TimedConfig.build("reviews_dp.yaml", [*SMALL, *plateau])
    assert config.train_block(2)["step"] > 0.0


def test_configurations_use_the_same_batches_and_continue_where_they_stopped() -> None:
    names = ("reviews_dp.yaml", "reviews_uniform.yaml")
    first, second = (bench_train.TimedConfig.build(name, SMALL) for name in names)
    first.train_block(3)
    for _ in range(3):
        next(second.batches)
    assert next(first.batches).tokens.equal(next(second.batches).tokens)


def test_zero_steps_are_an_error() -> None:
    with pytest.raises(ValueError, match="at least 1 and --warmup at least 0, got 0, 5 and 3"):
        bench("--config", "reviews_dp.yaml", "--steps", "0")


def test_an_unknown_key_is_an_error() -> None:
    with pytest.raises(UsageError, match=r"reviews_dp\.yaml: .*colour"):
        from_config("reviews_dp.yaml", ["data.colour=red"])
