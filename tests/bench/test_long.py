"""`bench long`: slopes of a training step, and the bandwidth of a decoding step."""

import argparse
import json

import pytest

from fna_lightning import available_kernels
from fna_lightning.bench import long
from fna_lightning.errors import UsageError


def bench(*words: str) -> int:
    parser = argparse.ArgumentParser()
    long.add_arguments(parser)
    return long.run(parser.parse_args(words))


@pytest.mark.e2e
@pytest.mark.skipif(available_kernels()["cpu"] != "ok", reason="measures the C kernel")
def test_report_is_consistent(tmp_path, capsys) -> None:
    file = tmp_path / "long.json"
    words = ["--lengths", "64,256", "--keys", "3000", "--seconds", "0.2"]
    assert bench(*words, "--json", str(file), "--plot", str(tmp_path / "long.png")) == 0
    report = json.loads(file.read_text())
    assert [row["competitor"] for row in report["rows"]] == long.COMPARED * 2
    for by_name in report["against n"].values():
        assert all(list(points) == ["64", "256"] for points in by_name.values())
    decoding = report["decoding"]
    for step in decoding["steps"].values():
        # 8 heads, keys and values of width 32, 4 bytes each
        assert step["GB/s"] == pytest.approx(3000 * 8 * 64 * 4 / step["ms"] / 1e6)
        assert step["share"] == pytest.approx(step["GB/s"] / decoding["read GB/s"])
        assert step["error"] <= long.MAX_ERROR
    assert (tmp_path / "long.png").stat().st_size > 1000
    assert "of the read bandwidth" in capsys.readouterr().out


@pytest.mark.parametrize("text", ["", "0", "64,x", "64,,128", "-5"])
def test_wrong_lengths_are_one_sentence(text) -> None:
    with pytest.raises(UsageError, match=r"--lengths takes numbers of tokens of at least 1, separated by commas"):
        bench("--lengths", text)


def test_wrong_number_of_keys_is_one_sentence() -> None:
    with pytest.raises(UsageError, match="--keys must be at least 1, got 0"):
        bench("--keys", "0")
