"""The shipped image configurations: each trains, and within a family only the attention differs."""

from itertools import groupby
from pathlib import Path

import pytest
import yaml
from cifar_folder import cifar_folder

from fna_lightning.building import build
from fna_lightning.cli import main
from fna_lightning.shipped import shipped_configs

CONFIGS = {name: path for name, path in shipped_configs().items() if name.startswith(("cifar10", "digits"))}


def family(name: str) -> str:
    return name.rpartition("_")[0]


@pytest.fixture(scope="module")
def data(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    cifar_folder(folder / "cifar10")
    return folder


@pytest.fixture(autouse=True)
def environment(data, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_DATA", str(data))
    monkeypatch.setenv("FNA_CACHE", str(data / "cache"))


@pytest.mark.parametrize("config", CONFIGS)
def test_it_trains(config) -> None:
    assert main(["fit", "--config", config, "--trainer.fast_dev_run=true", "--trainer.accelerator=cpu"]) == 0


def test_every_family_is_there() -> None:
    families = {
        name: {one.rpartition("_")[2] for one in some} for name, some in groupby(sorted(CONFIGS, key=family), family)
    }
    four = {f"{attention}.yaml" for attention in ("fna", "la", "dp", "uniform")}
    assert families == {"cifar10": four, "cifar10_strong": four, "cifar10_hour": four, "digits": four - {"la.yaml"}}


@pytest.mark.parametrize("name", sorted({family(one) for one in CONFIGS}))
def test_only_the_attention_differs(name) -> None:
    recipes = [yaml.safe_load(path.read_text()) for config, path in CONFIGS.items() if family(config) == name]
    attentions = [str(recipe["model"]["init_args"].pop("attention")) for recipe in recipes]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert len(set(attentions)) == len(recipes)


@pytest.mark.parametrize("config", CONFIGS)
def test_it_opens_with_what_it_is_and_its_command(config) -> None:
    first, second, *_ = CONFIGS[config].read_text().splitlines()
    assert first.startswith("# ")
    assert second == f"#   fna-lightning fit --config {config}"


@pytest.mark.parametrize(
    ("config", "least", "most"),
    [
        ("cifar10_fna.yaml", 118_618, 118_618),
        ("cifar10_strong_fna.yaml", 280_000, 330_000),
        ("cifar10_hour_fna.yaml", 270_000, 330_000),
    ],
)
def test_parameters(config, least, most) -> None:
    assert least <= sum(p.numel() for p in build(config).task.parameters()) <= most
