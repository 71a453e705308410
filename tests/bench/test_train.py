"""bench train: ratios and a profile that add up."""

import argparse
import json

import pytest

from fna_lightning.bench import train as bench_train
from fna_lightning.config.instantiate import build
from fna_lightning.errors import UsageError

SMALL = ["data.train_size=64", "data.longest=40", "data.batch_size=8"]


def bench(*words: str) -> int:
    parser = argparse.ArgumentParser()
    bench_train.add_arguments(parser)
    return bench_train.run(parser.parse_args([*words, *(word for one in SMALL for word in ("--set", one))]))


def test_ratios_and_profile_add_up(tmp_path, capsys) -> None:
    file = tmp_path / "times.json"
    words = ["--config", "reviews_uniform.yaml", "--against", "reviews_dp.yaml", "--steps", "3", "--repeats", "3"]
    assert bench(*words, "--warmup", "1", "--json", str(file)) == 0
    report = json.loads(file.read_text())
    ours, theirs = report["configs"]["reviews_uniform"], report["configs"]["reviews_dp"]
    ratio = report["ratios"]["reviews_uniform / reviews_dp"]
    paired = sorted(a / b for a, b in zip(ours["blocks"], theirs["blocks"], strict=True))
    assert [ratio["smallest"], ratio["median"], ratio["largest"]] == pytest.approx(paired)
    assert ratio["same_batches"]
    for one in (ours, theirs):
        assert len(one["blocks"]) == 3
        assert set(one["profile"]) == {"data", "forward", "backward", "optimizer", "lightning"}
        assert all(seconds > 0 for seconds in one["profile"].values())
        assert one["epoch_seconds"] == pytest.approx(8 * one["step_seconds"])
    assert report["kernels"]["DotProduct()"] == "sdpa"
    printed = capsys.readouterr().out
    assert f"reviews_uniform / reviews_dp: {ratio['median']:.2f}" in printed


def test_phases_of_a_block_fill_its_time() -> None:
    one = bench_train.Contestant.of("reviews_dp.yaml", SMALL)
    block = one.block(4)
    assert sum(seconds for phase, seconds in block.items() if phase != "step") == pytest.approx(block["step"])
    assert block["forward"] + block["backward"] > block["data"]
    # the task is left as it was
    assert "loss" not in vars(one.task)


def test_contestants_see_the_same_batches_and_go_on_where_they_stopped() -> None:
    first, second = (bench_train.Contestant.of(name, SMALL) for name in ("reviews_dp.yaml", "reviews_uniform.yaml"))
    first.block(3)
    for _ in range(3):
        next(second.batches)
    assert next(first.batches).tokens.equal(next(second.batches).tokens)


def test_senseless_numbers_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 and --warmup at least 0, got 0, 5 and 3"):
        bench("--config", "reviews_dp.yaml", "--steps", "0")


def test_an_unknown_key_is_named() -> None:
    with pytest.raises(UsageError, match=r"reviews_dp\.yaml: .*colour"):
        build("reviews_dp.yaml", ["data.colour=red"])
