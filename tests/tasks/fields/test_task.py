"""FieldRegression: it learns, and its losses and metrics are those of their formulas."""

import math

import lightning as L
import numpy as np
import pytest
import torch
from scipy.stats import norm
from torch.testing import assert_close

from fna_lightning.attention import DotProduct, Fractional
from fna_lightning.callbacks import AttentionGraph
from fna_lightning.tasks import (
    CategoricalLikelihood,
    FieldRegression,
    GaussianLikelihood,
    NoisyRecall,
    SmoothField,
    SquaredError,
    Terrain,
)
from fna_lightning.tasks.fields.data import FieldData
from fna_lightning.tasks.fields.episodes import EpisodeConfig
from fna_lightning.tasks.fields.likelihood import Likelihood

TINY = EpisodeConfig(context=(8, 16), queries=8, eval_context=(8, 16), train_size=64, val_size=16, test_size=24)


def task_for(data: FieldData, likelihood: Likelihood | None = None) -> FieldRegression:
    torch.manual_seed(0)
    attention = Fractional(1.2, 0.1, 2, learn=["kappa"])
    return FieldRegression(data.coordinate_dim, data.value_dim, data.eval_sets, attention, likelihood)


def quiet_trainer(**settings: object) -> L.Trainer:
    return L.Trainer(
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,  # type: ignore[arg-type]
    )


def outputs() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(3, 5, 4, generator=generator), torch.randn(3, 5, 2, generator=generator)


def test_the_gaussian_is_that_of_scipy() -> None:
    output, target = outputs()
    likelihood = GaussianLikelihood(beta=0.0)
    mean, deviation = likelihood.mean(output).numpy(), likelihood.deviation(output).numpy()
    expected = -norm.logpdf(target.numpy(), mean, deviation)
    np.testing.assert_allclose(likelihood.nll(output, target), expected, rtol=1e-5)
    assert likelihood.loss(output, target).item() == pytest.approx(expected.mean(), rel=1e-5)
    assert deviation.min() > 0.01


def test_beta_1_trains_the_means_as_the_squared_error_does() -> None:
    output, target = outputs()
    output.requires_grad_()
    (gradient,) = torch.autograd.grad(GaussianLikelihood(beta=1.0).loss(output, target), output)
    mean = output.detach()[..., :2].requires_grad_()
    (expected,) = torch.autograd.grad(0.5 * SquaredError().loss(mean, target), mean)
    assert_close(gradient[..., :2], expected)
    assert gradient[..., 2:].any()


def test_calibration_of_a_calibrated_and_of_an_overconfident_model() -> None:
    torch.manual_seed(0)
    target = torch.randn(1, 100_000, 1)
    likelihood = GaussianLikelihood()
    for deviation, coverage50, coverage90, error in ((1.0, 0.5, 0.9, 0.0), (0.5, 0.264, 0.589, None)):
        raw = math.log(math.expm1(deviation - 0.01))
        output = torch.cat([torch.zeros_like(target), torch.full_like(target, raw)], dim=-1)
        metrics = likelihood.metrics()
        for metric in metrics.values():
            metric.update(output, target)
        values = {name: metric.compute().item() for name, metric in metrics.items()}
        assert values["coverage50"] == pytest.approx(coverage50, abs=0.01)
        assert values["coverage90"] == pytest.approx(coverage90, abs=0.01)
        assert values["mse"] == pytest.approx(1.0, abs=0.02)
        assert values["calibration_error"] == pytest.approx(0.0, abs=0.01) if error == 0.0 else True
        assert (values["calibration_error"] > 0.15) is (error is None)


def test_the_categorical_loss_is_the_cross_entropy() -> None:
    logits, labels = torch.randn(3, 5, 4), torch.randint(0, 4, (3, 5))
    one_hot = torch.eye(4)[labels]
    expected = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
    likelihood = CategoricalLikelihood()
    assert_close(likelihood.loss(logits, one_hot), expected)
    assert_close(likelihood.correct(logits, one_hot), (logits.argmax(-1) == labels).float())
    assert_close(likelihood.mean(logits).sum(-1), torch.ones(3, 5))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"beta": 1.5}, r"beta must lie in \[0, 1\], got 1.5"),
        ({"min_deviation": 0.0}, "min_deviation must be positive"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, float], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GaussianLikelihood(**settings)


@pytest.mark.parametrize(
    ("data", "likelihood", "names"),
    [
        (SmoothField(episodes=TINY, seed=0), None, {"mse"}),
        (SmoothField(episodes=TINY, seed=0), GaussianLikelihood(), {"mse", "nll"}),
        (NoisyRecall(episodes=TINY, seed=0), CategoricalLikelihood(), {"nll", "accuracy"}),
    ],
    ids=["mse", "gaussian", "recall"],
)
def test_each_evaluation_set_has_its_metrics(data: FieldData, likelihood: Likelihood | None, names: set[str]) -> None:
    trainer = quiet_trainer(max_epochs=1)
    task = task_for(data, likelihood)
    trainer.fit(task, data)
    results = trainer.test(task, data, verbose=False)[0]
    assert {name for name in results if "_n" in name} == {f"test/{name}_n{n}" for name in names for n in (8, 16)}
    error = task.likelihood.error
    # both sets have the same number of episodes
    assert results[f"test/{error}"] == pytest.approx((results[f"test/{error}_n8"] + results[f"test/{error}_n16"]) / 2)
    assert task.error_curves(results, "test") == {
        "": {8: results[f"test/{error}_n8"], 16: results[f"test/{error}_n16"]}
    }


def test_a_metric_does_not_depend_on_the_batch_size() -> None:
    results = []
    for batch_size in (5, 16):
        data = SmoothField(episodes=TINY, seed=0, batch_size=batch_size)
        results.append(quiet_trainer().test(task_for(data), data, verbose=False)[0])
    assert results[0] == pytest.approx(results[1], rel=1e-5)


def test_it_learns_terrain() -> None:
    episodes = EpisodeConfig(context=(32, 32), eval_context=(32,), train_size=1600, test_size=64)
    data = Terrain(episodes=episodes, seed=0)
    task = task_for(data)
    task.optimizer = lambda parameters: torch.optim.AdamW(parameters, lr=1e-2)
    trainer = quiet_trainer(max_epochs=2, gradient_clip_val=1.0, limit_val_batches=0)
    before = trainer.test(task, data, verbose=False)[0]["test/mse"]
    trainer.fit(task, data)
    after = trainer.test(task, data, verbose=False)[0]["test/mse"]
    assert after < 0.4 < 0.7 < before


def test_attention_graph_leaves_cross_attention_out(caplog: pytest.LogCaptureFixture) -> None:
    data = SmoothField(episodes=TINY, seed=0)
    graph = AttentionGraph(sequences=2)
    quiet_trainer(max_epochs=1, callbacks=[graph]).fit(task_for(data), data)
    assert graph.off
    assert "the model has no self-attention" in caplog.text


def test_any_attention_starts_from_the_same_weights_and_episodes() -> None:
    states = []
    for attention in (DotProduct(), Fractional(1.2, 0.1, 2)):
        torch.manual_seed(0)
        states.append(FieldRegression(2, 1, [], attention).state_dict())
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
