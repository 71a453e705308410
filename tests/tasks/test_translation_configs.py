"""The shipped translation configurations: each trains, and within a family only the attention differs."""

import json
from itertools import groupby
from pathlib import Path

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.shipped import shipped_configs

CONFIGS = {name: path for name, path in shipped_configs().items() if name.startswith(("multi30k", "numbers"))}
SENTENCES = [("A man is walking.", "Ein Mann läuft."), ("Two dogs run.", "Zwei Hunde rennen.")] * 8


def family(name: str) -> str:
    return name.rpartition("_")[0]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    (folder / "multi30k").mkdir()
    for split in ("train", "val", "test"):
        lines = [json.dumps({"en": one, "de": other}) for one, other in SENTENCES]
        (folder / "multi30k" / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


@pytest.mark.parametrize("config", CONFIGS)
def test_it_trains(config, data, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_DATA", str(data))
    monkeypatch.setenv("FNA_CACHE", str(data / "cache"))
    assert main(["fit", "--config", config, "--trainer.fast_dev_run=true", "--trainer.accelerator=cpu"]) == 0


def test_every_family_is_there() -> None:
    families = {
        name: {one.rpartition("_")[2] for one in some} for name, some in groupby(sorted(CONFIGS, key=family), family)
    }
    four = {f"{attention}.yaml" for attention in ("fna", "la", "dp", "uniform")}
    assert families == {"multi30k": four, "multi30k_strong": four, "numbers": four - {"la.yaml"}}


@pytest.mark.parametrize("name", sorted({family(one) for one in CONFIGS}))
def test_only_the_attention_differs(name) -> None:
    recipes = [yaml.safe_load(path.read_text()) for config, path in CONFIGS.items() if family(config) == name]
    attentions = [str(recipe["model"]["init_args"].pop("attention")) for recipe in recipes]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert len(set(attentions)) == len(recipes)


@pytest.mark.parametrize("config", CONFIGS)
def test_it_opens_with_what_it_is_and_its_command(config) -> None:
    first, second, *_ = CONFIGS[config].read_text().splitlines()
    assert first.startswith(("# Multi30K, ", "# Number words, "))
    assert second == f"#   fna-lightning fit --config {config}"
