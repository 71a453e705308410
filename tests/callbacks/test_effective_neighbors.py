"""EffectiveNeighbors: the effective number of neighbors of each head against the number of context points."""

import csv

import pytest
import torch

from fna_lightning.attention import Fractional, Uniform
from fna_lightning.callbacks.effective_neighbors import EffectiveNeighbors, head_neighbors
from fna_lightning.cli import main
from fna_lightning.graph import effective_neighbors
from fna_lightning.nn import TransformerProcess
from fna_lightning.tasks.fields.episodes import EpisodeConfig, FieldBatch
from fna_lightning.tasks.fields.generated import SmoothField
from fna_lightning.tasks.fields.task import FieldRegression


def batch_of(size: int) -> FieldBatch:
    data = SmoothField(episodes=EpisodeConfig(queries=8, eval_context=(size,)))
    return data.split("val").__getitems__(list(range(4)))


def test_effective_neighbors_of_rows() -> None:
    weights = torch.tensor([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0], [0.5, 0.0, 0.5, 0.0]])
    torch.testing.assert_close(effective_neighbors(weights), torch.tensor([4.0, 1.0, 2.0], dtype=torch.float64))
    with pytest.raises(ValueError, match="weights must be"):
        effective_neighbors(weights[0])


@pytest.mark.parametrize("network", [{}, {"network": TransformerProcess}])
def test_uniform_attention_has_all_points_as_neighbors(network) -> None:
    for size in (16, 64):
        values = head_neighbors(FieldRegression(2, 1, [], Uniform(), **network), batch_of(size))
        assert all(value == pytest.approx(size) for value in values.values())


@pytest.mark.parametrize(("attention", "least", "most"), [("fna", 0.8, 1.5), ("gaussian", 2.5, 4.0)])
def test_a_power_law_keeps_its_neighbors_as_the_points_get_denser(attention, least, most) -> None:
    attentions = {"fna": Fractional(1.2, kappa=1e-3, intrinsic_dim=2), "gaussian": Fractional(2.0, kappa=0.05)}
    torch.manual_seed(0)
    task = FieldRegression(2, 1, [], attentions[attention])
    projection = task.network.cross_attn.projection
    projection.key.load_state_dict(projection.query.state_dict())
    few, many = ([*head_neighbors(task, batch_of(size)).values()] for size in (64, 256))
    assert len(few) == len(many) == 4
    assert all(least < after / before < most for before, after in zip(few, many, strict=True))


def test_a_run_logs_every_head_and_draws_the_curve(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["--data.episodes.train_size=32", "--data.episodes.val_size=4", "--trainer.max_epochs=1"]
    assert main(["fit", "--config", "smooth_uniform.yaml", *options, "--trainer.accelerator=cpu"]) == 0
    (metrics,) = tmp_path.rglob("metrics.csv")
    with metrics.open() as file:
        columns = {name: value for row in csv.DictReader(file) for name, value in row.items() if value}
    for size in (16, 64, 256, 1024):
        for head in range(4):
            assert float(columns[f"neighbors/n{size}/network.cross_attn/{head}"]) == pytest.approx(size, rel=1e-4)
    assert list(tmp_path.rglob("neighbors.png"))


def test_settings_and_models_are_checked() -> None:
    with pytest.raises(ValueError, match="episodes must be at least 1"):
        EffectiveNeighbors(episodes=0)
    with pytest.raises(TypeError, match="remove the callback"):
        EffectiveNeighbors().setup(None, torch.nn.Linear(1, 1), "fit")
