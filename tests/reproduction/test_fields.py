"""`reproduce fields`: choices on validation episodes only, paired statistics, references, and resuming."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

from fna_lightning.cli import main
from fna_lightning.experiments.seeds import holm
from fna_lightning.reproduction.artifacts import fields as artifact
from fna_lightning.reproduction.fields import study
from fna_lightning.reproduction.fields.attentions import ATTENTIONS
from fna_lightning.reproduction.fields.comparison import Comparison, compare
from fna_lightning.reproduction.fields.figures import error_figure, neighbor_figure, phase_figure, tail_figure
from fna_lightning.reproduction.fields.references import (
    BAYES,
    INVERSE,
    PROCESS,
    bayes_rule,
    gaussian_process,
    inverse_distances,
    nearest,
)
from fna_lightning.reproduction.fields.report import comparison_table, error_table, losses, markdown, plain
from fna_lightning.reproduction.fields.scales import ALL_ATTENTIONS, ALL_TASKS, FIELD_SCALES
from fna_lightning.reproduction.fields.study import FieldResults, choice_runs, start_errors
from fna_lightning.reproduction.fields.tasks import TAILS, TASKS, curve_sizes, set_label, tail_tasks
from fna_lightning.reproduction.fields.training import SPARE_SEED, FieldRun, new_task, run_field
from fna_lightning.reproduction.scales import SCALES
from fna_lightning.tasks import NoisyRecall
from fna_lightning.tasks.fields.episodes import EpisodeConfig

SMOKE = FIELD_SCALES["smoke"]
TINY = replace(SMOKE, tasks=("smooth",), attentions=("fna", "uniform"), steps=1, episodes=16)


def test_scales_tasks_and_attentions() -> None:
    assert FIELD_SCALES.keys() == SCALES.keys()
    assert set(ALL_TASKS) == TASKS.keys()
    assert set(ALL_ATTENTIONS) == ATTENTIONS.keys()
    assert FIELD_SCALES["small"].seeds >= 5
    assert tail_tasks(ALL_TASKS).keys() == TAILS.keys()
    for task in TASKS.values():
        assert {*task.primary, *task.further} <= set(task.data(SMOKE).eval_sets)
    assert all(len(attention.starts) == 2 for name, attention in ATTENTIONS.items() if name != "uniform")
    assert curve_sizes(TASKS["terrain"].data(SMOKE).eval_sets) == {16: "n16", 64: "n64", 256: "n256"}
    assert [set_label(name) for name in ("n64", "n64_even")] == ["n = 64", "n = 64, even survey"]


@pytest.mark.parametrize("name", ATTENTIONS)
def test_every_attention_has_the_same_initial_weights_and_episodes(name) -> None:
    states, batches = [], []
    for other in ("uniform", name):
        run = FieldRun("smooth", other, ATTENTIONS[other].starts[0], 3, "test", TINY)
        data = TASKS["smooth"].data(run.scale, run.seed)
        network = new_task(run, data).network
        states.append({key: value for key, value in network.state_dict().items() if "learned" not in key})
        batches.append(data.split("train").__getitems__([0, 1]))
    assert states[0].keys() == states[1].keys()
    assert all(torch.equal(states[0][key], states[1][key]) for key in states[0])
    for left, right in zip(*batches, strict=True):
        torch.testing.assert_close(left, right, rtol=0, atol=0)


def test_bayes_rule_is_the_posterior_of_the_noise() -> None:
    data = NoisyRecall(tail=1.0, noise_scale=0.3, dim=2, num_classes=2)
    x, y = np.array([[0.0, 0.0], [2.0, 0.0]], np.float32), np.eye(2, dtype=np.float32)
    cue = np.array([[0.5, 0.0]], np.float32)
    densities = [(1.0 + r**2 / 0.09) ** -1.5 for r in (0.5, 1.5)]
    expected = np.array(densities) / sum(densities)
    np.testing.assert_allclose(bayes_rule(data, x, y, cue)[0], expected, rtol=1e-6)
    gaussian = NoisyRecall(noise="gaussian", noise_scale=0.7, dim=2, num_classes=2)
    densities = [math.exp(-(r**2) / (2 * 0.49)) for r in (0.5, 1.5)]
    np.testing.assert_allclose(bayes_rule(gaussian, x, y, cue)[0], np.array(densities) / sum(densities), rtol=1e-6)


def test_the_noise_of_every_tail_is_equally_hard() -> None:
    episodes = EpisodeConfig(eval_context=(64,), test_size=256)
    for tail, scale in TAILS.items():
        noise = {"noise": "gaussian"} if math.isinf(tail) else {"tail": tail}
        data = NoisyRecall(**noise, noise_scale=scale, episodes=episodes)
        batch = data.split("test").__getitems__(list(range(256)))
        errors = [
            -np.log((bayes_rule(data, *(part.numpy() for part in episode[:3])) * episode[3].numpy()).sum(-1)).mean()
            for episode in zip(*batch[:4], strict=True)
        ]
        assert 0.27 < np.mean(errors) < 0.37


def test_classical_references() -> None:
    rng = np.random.default_rng(0)
    x, queries = rng.uniform(-1, 1, (200, 2)), rng.uniform(-0.9, 0.9, (20, 2))
    y, truth = (np.sin(2.0 * points.sum(axis=1, keepdims=True)) for points in (x, queries))
    by_hand = x[np.square(queries[:, None] - x).sum(-1).argmin(1)]
    np.testing.assert_allclose(nearest(x, y, queries), np.sin(2.0 * by_hand.sum(axis=1, keepdims=True)))
    weights = np.sqrt(np.square(queries[:, None] - x).sum(-1)) ** -3.0
    expected = weights @ y / weights.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(inverse_distances(x, y, queries, power=3.0), expected, rtol=1e-6)
    np.testing.assert_allclose(inverse_distances(x, y, x[:3], power=3.0), y[:3], atol=1e-6)
    prediction = gaussian_process(x, y, queries, smoothness=1.5, length=1.0)
    assert np.abs(prediction - truth).max() < 0.05


def test_holm() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.7]) == pytest.approx([1.0, 1.0])
    corrected = holm([0.02, math.nan])
    assert corrected[0] == pytest.approx(0.02)
    assert math.isnan(corrected[1])


def errors_of(levels: dict[str, float], seeds: int = 5) -> dict[str, dict[int, dict[str, list[float]]]]:
    """Return errors at given levels, with a common part of each seed and of each group of episodes."""
    rng = np.random.default_rng(0)
    common = rng.normal(0.0, 0.1, (seeds, 32))
    sets = TASKS["terrain"].data(SMOKE).eval_sets
    return {
        name: {
            seed: {eval_set: (level + common[seed] + rng.normal(0.0, 0.001, 32)).tolist() for eval_set in sets}
            for seed in range(seeds)
        }
        for name, level in levels.items()
    }


def results_of(levels: dict[str, float]) -> FieldResults:
    errors = {"terrain": errors_of(levels)}
    references = {"terrain": {PROCESS: errors_of({"p": 0.5})["p"][0], INVERSE: errors_of({"i": 3.0})["i"][0]}}
    starts = {"terrain": {"fna": {0.1: 1.0, 1.0: math.inf}}}
    neighbors = {"terrain": {"fna": {"n16": [[1.0, 9.0]], "n64": [[2.0, 9.0]]}}}
    comparisons = compare(errors, {"terrain": ("n64",)})
    return FieldResults(FIELD_SCALES["small"], errors, references, neighbors, starts, comparisons, 0, 1.0)


def test_comparisons_are_paired_and_have_a_direction() -> None:
    results = results_of({"fna": 1.0, "gaussian": 1.02, "dot": 0.9, "qk-norm": 1.0})
    by_name = {item.attention: item for item in results.comparisons}
    assert by_name["gaussian"].difference == pytest.approx(-0.02, abs=1e-3)
    # Unpaired, the differences between seeds and episodes would hide it.
    assert by_name["gaussian"].corrected < 0.01
    assert by_name["gaussian"].episode_half_width < 0.001
    assert {name: item.verdict for name, item in by_name.items()} == {
        "gaussian": "FNA",
        "dot": "the other",
        "qk-norm": "no difference",
    }
    assert all(item.corrected >= item.p_value for item in results.comparisons)


def test_the_page_has_the_losses_and_marks_the_best() -> None:
    results = results_of({"fna": 1.0, "gaussian": 1.02, "dot": 0.9})
    page = markdown(results, "fna-lightning reproduce fields", {"fields_errors.png": "Errors."})
    (line,) = [line for line in page.splitlines() if line.startswith("| terrain: n = 64 (MSE)")]
    assert line.count("**") == 2
    assert "**0.9" in line
    assert "![Errors.](fields_errors.png)" in page
    sentence = losses(results)[0]
    assert sentence.startswith("terrain, n = 64: FNA 1.0")
    assert "dot-product 0.9" in sentence
    assert "*" in sentence
    assert "Gaussian process 0.4" in sentence
    assert INVERSE not in sentence
    assert [line[-1] for line in comparison_table(results).lines] == ["FNA", "dot-product"]
    assert error_table(results).columns[1:4] == ["FNA", "Gaussian", "dot-product"]
    values = json.loads(json.dumps(plain(results, "c"), allow_nan=False))
    assert values["starts"]["terrain"]["fna"] == {"0.1": 1.0, "1": None}
    assert len(values["errors"]["terrain"]["fna"]["n64"]) == 5


def test_figures_of_incomplete_results() -> None:
    results = results_of({"fna": 1.0})
    for draw in (error_figure, tail_figure, phase_figure, neighbor_figure):
        assert draw(results) is not None
    assert len(phase_figure(results_of({"fna": 1.0, "gaussian": 2.0})).axes) == 2


def test_the_start_value_is_chosen_on_validation_episodes(tmp_path) -> None:
    for run in choice_runs(TINY):
        assert (run.seed, run.split) == (SPARE_SEED, "val")
        path = run.path(tmp_path)
        path.parent.mkdir(parents=True, exist_ok=True)
        error = 0.5 if run.start == 0.1 else 0.7
        path.write_text(json.dumps({"key": run.key(), "errors": {"n16": [error]}, "neighbors": {}, "seconds": 1.0}))
    assert start_errors(TINY, tmp_path, "smooth", "fna") == pytest.approx({0.1: 0.5, 1.0: 0.7})
    runs = study.compared_runs(TINY, tmp_path)
    assert {run.start for run in runs if run.attention == "fna"} == {0.1}
    assert {(run.seed, run.split) for run in runs} == {(0, "test"), (1, "test")}


def test_a_run_is_measured_on_its_split_and_stored_with_its_settings(tmp_path) -> None:
    runs = {split: FieldRun("smooth", "fna", 0.1, 0, split, TINY) for split in ("val", "test")}
    for run in runs.values():
        assert run.result(tmp_path) is None
        run_field(run, tmp_path)
    errors = {split: run.result(tmp_path)["errors"] for split, run in runs.items()}
    assert errors["val"] != errors["test"]
    assert errors["test"].keys() == {"n16", "n64", "n256", "n1024"}
    longer = replace(runs["test"], scale=replace(TINY, steps=2))
    assert longer.result(tmp_path) is None
    assert replace(runs["test"], scale=replace(TINY, seeds=9)).result(tmp_path) is not None


@pytest.mark.e2e
def test_the_command_writes_the_page_and_continues(tmp_path, capsys, monkeypatch) -> None:
    monkeypatch.setitem(FIELD_SCALES, "smoke", replace(SMOKE, attentions=("fna", "gaussian"), tasks=("recall-cauchy",)))
    command = ["reproduce", "fields", "--out", str(tmp_path), "--workers", "1"]
    assert main([*command, "--no-train"]) == 1
    assert "no run has finished" in capsys.readouterr().out
    assert main(command) == 0
    folder = tmp_path / "artifacts" / "fields"
    names = {path.name for path in folder.iterdir()}
    assert {f"{name}.png" for name in artifact.CAPTIONS} | {"fields.md", "fields.json"} <= names
    values = json.loads((folder / "fields.json").read_text())
    assert values["missing_runs"] == 0
    assert values["references"]["recall-cauchy"][BAYES]["n64"] < values["errors"]["recall-cauchy"]["fna"]["n64"]["0"]
    stored = sorted((tmp_path / "runs" / "fields").rglob("*.json"))
    stamps = [path.stat().st_mtime_ns for path in stored[1:]]
    stored[0].unlink()
    (folder / "result.json").unlink()
    capsys.readouterr()
    assert main(command) == 0
    assert "1 of 1" in capsys.readouterr().out
    assert [path.stat().st_mtime_ns for path in stored[1:]] == stamps


def test_verdict_needs_a_corrected_p_value() -> None:
    item = Comparison("terrain", "n64", "dot", -1.0, 0.1, 0.1, 0.001, math.nan, 5)
    assert item.verdict == "no difference"
    assert replace(item, corrected=0.001).verdict == "FNA"
    assert replace(item, corrected=0.02).verdict == "no difference"
