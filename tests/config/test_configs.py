"""Shipped configurations: each one trains and logs its attention; in a family only the attention differs."""

import shlex
from collections import defaultdict

import pytest
import yaml

from fna_lightning.cli import main
from fna_lightning.config.instantiate import from_config
from fna_lightning.config.resolve import deviations, shipped_configs

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("shipped_environment")]

CONFIGS = shipped_configs()
ALL, NO_LA = {"fna", "la", "dp", "uniform"}, {"fna", "dp", "uniform"}
# Attentions of each family, and the beginning of the first line of its files.
FAMILIES = {
    "reviews": (NO_LA, "# The embedded reviews, "),
    "imdb": (ALL, "# IMDb, "),
    "imdb_small": (ALL, "# IMDb, "),
    "imdb_strong": (ALL | {"qknorm", "learned"}, "# IMDb, "),
    "imdb_sphere": ({"fna", "la"}, "# IMDb, "),
    "cifar10": (ALL, "# CIFAR-10, "),
    "cifar10_strong": (ALL, "# CIFAR-10, "),
    "cifar10_hour": (ALL | {"qknorm", "learned"}, "# CIFAR-10 in less than an hour "),
    "digits": (NO_LA, "# Scikit-learn's handwritten digits, "),
    "multi30k": (ALL, "# Multi30K, "),
    "multi30k_strong": (ALL | {"qknorm", "learned"}, "# Multi30K, "),
    "numbers": (NO_LA, "# Number words, "),
    "text": ({"fna"}, "# Texts of your own "),
    "parallel": ({"fna"}, "# Sentences of your own "),
    "images": ({"fna"}, "# Your own images in class folders, "),
    "terrain": (ALL, "# Surveys of real terrain "),
    "pixels": (ALL, "# Random pixels of scikit-learn's sample photographs, "),
    "recall": (ALL, "# Recall of labels from cues with Cauchy noise, "),
    "smooth": (ALL, "# A smooth random field with one length scale, "),
    "field": ({"fna"}, "# Own scattered measurements from a CSV file, "),
}
# Options that the configurations for data of the user need; the files are those of helpers.shipped_data.
OWN_DATA = {
    "text_fna.yaml": "--data.path mine.csv --data.text_column review --data.label_column topic",
    "parallel_fna.yaml": "--data.path english.txt,german.txt",
    "images_fna.yaml": "--data.path photos/",
    "field_fna.yaml": '--data.path survey.csv --data.coordinates "[lon, lat]" --data.value height',
}
# The graph measures need self-attention, which the networks of fields do not have.
FIELDS = {"terrain", "pixels", "recall", "smooth", "field"}


def family(config: str) -> str:
    return config.rpartition("_")[0]


@pytest.mark.parametrize("config", CONFIGS)
def test_config_trains(config) -> None:
    options = shlex.split(OWN_DATA.get(config, ""))
    assert main(["fit", "--config", config, *options, "--trainer.fast_dev_run=true", "--trainer.accelerator=cpu"]) == 0


@pytest.mark.parametrize("config", CONFIGS)
def test_config_logs_the_attention(config) -> None:
    callbacks = yaml.safe_load(CONFIGS[config].read_text())["trainer"]["callbacks"]
    expected = "EffectiveNeighbors" if family(config) in FIELDS else "AttentionGraph"
    assert [callback["class_path"] for callback in callbacks].count(expected) == 1


def test_families() -> None:
    attentions_of_family = defaultdict(set)
    for config in CONFIGS:
        attentions_of_family[family(config)].add(config.removesuffix(".yaml").rpartition("_")[2])
    assert attentions_of_family == {name: attentions for name, (attentions, _) in FAMILIES.items()}


@pytest.mark.parametrize("name", FAMILIES)
def test_only_the_attention_differs(name) -> None:
    recipes = [yaml.safe_load(path.read_text()) for config, path in CONFIGS.items() if family(config) == name]
    attentions = [str(recipe["model"]["init_args"].pop("attention")) for recipe in recipes]
    assert all(recipe == recipes[0] for recipe in recipes)
    assert len(set(attentions)) == len(recipes)


@pytest.mark.parametrize("config", CONFIGS)
def test_comment_names_the_recipe_and_the_command(config) -> None:
    first, second, *_ = CONFIGS[config].read_text().splitlines()
    assert first.startswith(FAMILIES[family(config)][1])
    assert second == f"#   fna-lightning fit --config {config} {OWN_DATA.get(config, '')}".rstrip()


@pytest.mark.parametrize("config", CONFIGS)
def test_comment_refers_to_the_deviations(config) -> None:
    reference = f"# Deviations from the paper: see {family(config)} in fna_lightning/config/deviations.yaml."
    assert (reference in CONFIGS[config].read_text().splitlines()) == bool(deviations(config))


def test_deviations_of_a_config() -> None:
    small, control = deviations("imdb_small_fna.yaml"), deviations("imdb_small_uniform.yaml")
    assert small[0] == "The learning rate is that of the authors' code for one layer; the text states 1e-4."
    assert small[1:] == deviations("imdb_fna.yaml")
    assert control == [*small, "Uniform attention is not in the paper; it is a control."]
    assert deviations("reviews_fna.yaml") == deviations("my_own.yaml") == []


@pytest.mark.parametrize(
    ("config", "least", "most"),
    [
        ("cifar10_fna.yaml", 118_618, 118_618),
        ("cifar10_strong_fna.yaml", 280_000, 330_000),
        ("cifar10_hour_fna.yaml", 470_000, 520_000),
    ],
)
def test_number_of_parameters(config, least, most) -> None:
    assert least <= sum(p.numel() for p in from_config(config).task.parameters()) <= most
