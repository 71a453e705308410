"""AttentionGraph logs the graph measures of the probe, does not change training, and never ends a run."""

import csv
import logging
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor

from fna_lightning.attention import DotProduct, Fractional, Uniform
from fna_lightning.callbacks import AttentionEntropy, AttentionGraph, PathLength, SpectralGap
from fna_lightning.callbacks.head_means import mean_tag
from fna_lightning.graph import MEASURES, align, measure, path_lengths, spectral_gap
from fna_lightning.introspection.maps import attention_maps
from fna_lightning.introspection.probe import probe_batch, probe_indices
from fna_lightning.nn import EncoderConfig
from fna_lightning.tasks import ReviewData, TextClassification
from fna_lightning.tasks.data.sequences import Sequences

pytestmark = pytest.mark.e2e


class FewReviews(ReviewData):
    """A few reviews with an optional validation split of given token ids."""

    def __init__(self, val: list[list[int]] | None = None) -> None:
        super().__init__(train_size=32, eval_size=12, longest=40, batch_size=8)
        self.val = val

    def split(self, name: str) -> Sequences:
        if name == "val" and self.val is not None:
            return Sequences.of(self.val, [0] * len(self.val))
        return super().split(name)


def task(attention: Any = None, num_heads: int = 2) -> TextClassification:
    torch.manual_seed(0)
    data = FewReviews()
    return TextClassification(
        data.vocab_size,
        2,
        attention or Fractional(kappa=1.0),
        EncoderConfig(dim=4 * num_heads, depth=2, num_heads=num_heads, ffn_dim=8),
    )


def trainer(folder: Path, *callbacks: L.Callback, **options: Any) -> L.Trainer:
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False, "accelerator": "cpu"}
    loggers = [TensorBoardLogger(folder, name="tb"), CSVLogger(folder, name="csv")]
    options = {"max_epochs": 2, "logger": loggers, "enable_checkpointing": False, **options}
    return L.Trainer(callbacks=list(callbacks), default_root_dir=folder, **quiet, **options)


def rows(folder: Path) -> list[dict[str, str]]:
    (path,) = folder.glob("csv/version_*/metrics.csv")
    return list(csv.DictReader(path.open()))


def probe_maps(model: TextClassification, data: FewReviews, count: int, max_length: int) -> dict[str, Any]:
    batch = probe_batch(data.val_dataloader(), count)
    return attention_maps(model, lambda: model.probe(batch, max_length))


def test_logged_values_equal_the_graph_functions_on_the_probe(tmp_path: Path) -> None:
    model, data = task(), FewReviews()
    fit = trainer(tmp_path, AttentionGraph(sequences=3, max_length=24))
    fit.fit(model, data)
    maps = probe_maps(model, FewReviews(), 3, 24)
    logged = fit.callback_metrics
    gaps = torch.stack([spectral_gap(layer_map.weights, layer_map.lengths) for layer_map in maps.values()])
    assert logged["attention/spectral_gap"].item() == pytest.approx(gaps.mean().item(), abs=1e-6)
    measured = [measure(layer_map.weights, layer_map.lengths) for layer_map in maps.values()]
    for name in MEASURES:
        mean = torch.stack([values[name] for values in measured]).mean().item()
        assert logged[mean_tag(name)].item() == pytest.approx(mean, abs=1e-5)
    heads = [row for row in rows(tmp_path) if row["heads/encoder.layers.1.self_attn/1/mean_hops"]]
    # after the first step and at two validations
    assert len(heads) == 3
    second = path_lengths(*(getattr(maps["encoder.layers.1.self_attn"], key) for key in ("weights", "lengths")))
    assert float(heads[-1]["heads/encoder.layers.1.self_attn/1/mean_hops"]) == pytest.approx(
        second.mean[:, 1].mean().item(), abs=1e-6
    )


def board_tags(folder: Path) -> dict[str, Any]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = EventAccumulator(str(next(folder.glob("tb/version_0"))))
    board.Reload()
    return board.Tags()


def test_tensorboard_gets_scalars_and_figures(tmp_path: Path) -> None:
    trainer(tmp_path, AttentionGraph(max_length=24)).fit(task(), FewReviews())
    tags = board_tags(tmp_path)
    assert {"attention/spectral_gap", "heads/encoder.layers.0.self_attn/0/entropy"} <= set(tags["scalars"])
    figures = {"gap_during_training", "attention_matrix", "hop_matrix", "spectrum", "diffusion_map"}
    assert {f"attention_figures/{name}" for name in figures} <= set(tags["images"])
    assert tags["histograms"] == ["attention_figures/hops"]


def test_tensorboard_shows_the_means_first(tmp_path: Path) -> None:
    trainer(tmp_path, AttentionGraph(max_length=24)).fit(task(), FewReviews())
    tags = board_tags(tmp_path)
    # TensorBoard sorts the cards of all kinds by tag and groups them by the text before the first slash
    cards = sorted(tag for kind in ("scalars", "images", "histograms") for tag in tags[kind])
    assert cards[:2] == ["attention/mean_hops", "attention/spectral_gap"]
    assert not cards[2].startswith("attention/")


@pytest.mark.parametrize(
    ("num_heads", "per_head", "curves"),
    [(8, None, True), (9, None, False), (9, True, True), (2, False, False)],
    ids=["16 heads", "18 heads", "forced on", "forced off"],
)
def test_many_heads_get_histograms_and_heat_maps_instead_of_curves(
    tmp_path: Path, num_heads: int, per_head: bool | None, curves: bool
) -> None:
    callback = SpectralGap(max_length=16, per_head=per_head)
    trainer(tmp_path, callback, max_epochs=1).fit(task(num_heads=num_heads), FewReviews())
    tags, columns = board_tags(tmp_path), list(rows(tmp_path)[0])
    heads = {f"heads/encoder.layers.{layer}.self_attn/{h}/spectral_gap" for layer in range(2) for h in range(num_heads)}
    for names in (tags["scalars"], columns):
        assert "attention/spectral_gap" in names
        assert {name for name in names if name.startswith("heads/")} == (heads if curves else set())
    assert ("heads/spectral_gap" in tags["histograms"]) != curves
    assert ("attention_figures/heads_spectral_gap" in tags["images"]) != curves


def test_the_first_epoch_is_measured_before_its_validation(tmp_path: Path) -> None:
    # without a sanity check, no validation has set up its loader before the first step
    callback = SpectralGap(max_length=16, per_head=False)
    data = ReviewData(train_size=12, eval_size=4, longest=40, batch_size=1)
    trainer(tmp_path, callback, num_sanity_val_steps=0).fit(task(), data)
    logged = [row for row in rows(tmp_path) if row["attention/spectral_gap"]]
    # after 1 and 10 steps, and at the end of each epoch of 12 batches; the logged step counts from 0
    assert [row["step"] for row in logged] == ["0", "9", "11", "23"]


def test_the_callback_does_not_change_training(tmp_path: Path) -> None:
    states = []
    for number, callbacks in enumerate(([], [AttentionGraph(every_n_steps=2)], [AttentionGraph()])):
        L.seed_everything(3, verbose=False)
        model = task()
        trainer(tmp_path / str(number), *callbacks).fit(model, FewReviews())
        states.append(model.state_dict())
    for other in states[1:]:
        assert all(torch.equal(states[0][name], other[name]) for name in states[0])


def test_every_n_steps_with_selected_layers_and_heads(tmp_path: Path) -> None:
    callback = SpectralGap(every_n_steps=3, layers=[1], heads=[0], max_length=16)
    trainer(tmp_path, callback, log_every_n_steps=50).fit(task(), FewReviews())
    logged = [row for row in rows(tmp_path) if row["attention/spectral_gap"]]
    # 4 batches per epoch, 2 epochs: measured after 3 and 6 steps; the logged step counts from 0
    assert [row["step"] for row in logged] == ["2", "5"]
    assert [row["epoch"] for row in logged] == ["0", "1"]
    heads = [name for name in logged[0] if name.startswith("heads/")]
    assert heads == ["heads/encoder.layers.1.self_attn/0/spectral_gap"]


@pytest.mark.parametrize(
    ("callback_class", "names"),
    [
        (SpectralGap, {"spectral_gap"}),
        (PathLength, {"mean_hops", "max_hops", "unreachable"}),
        (AttentionEntropy, {"entropy", "tv_to_uniform", "effective_rank"}),
    ],
)
def test_each_callback_logs_its_own_measures(
    tmp_path: Path, callback_class: type[AttentionGraph], names: set[str]
) -> None:
    fit = trainer(tmp_path, callback_class(max_length=16), max_epochs=1)
    fit.fit(task(Uniform()), FewReviews())
    assert {name for name in fit.callback_metrics if name.startswith("attention")} == set(map(mean_tag, names))


class BadAttention(DotProduct):
    """Dot-product attention whose weights are NaN."""

    def weights(self, *args: Any, **kwargs: Any) -> Tensor:
        return super().weights(*args, **kwargs) * torch.nan


@pytest.mark.parametrize(
    ("attention", "val", "reason"),
    [
        (BadAttention(), None, "weights must be finite, got nan"),
        (None, [[], [], []], "the probe sequences have no tokens"),
    ],
    ids=["nan", "no tokens"],
)
def test_after_a_failure_the_callback_is_off_and_training_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, attention: Any, val: Any, reason: str
) -> None:
    callback = AttentionGraph()
    logging.getLogger("fna_lightning").propagate = True
    with caplog.at_level(logging.WARNING, logger="fna_lightning"):
        fit = trainer(tmp_path, callback)
        fit.fit(task(attention), FewReviews(val))
    warnings = [record.getMessage() for record in caplog.records if "AttentionGraph" in record.getMessage()]
    assert len(warnings) == 1
    assert reason in warnings[0]
    assert callback.off
    assert fit.current_epoch == 2
    assert not [name for name in fit.callback_metrics if name.startswith("attention")]


def test_a_failure_of_another_process_turns_the_callback_off(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    callback = AttentionGraph()
    fit = trainer(tmp_path, callback)

    def reduce(sums: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # the last entry counts the processes that failed; Lightning itself reduces scalars
        return sums + torch.eye(len(sums))[-1] if sums.ndim else sums

    monkeypatch.setattr(fit.strategy, "reduce", reduce)
    logging.getLogger("fna_lightning").propagate = True
    with caplog.at_level(logging.WARNING, logger="fna_lightning"):
        fit.fit(task(), FewReviews())
    assert callback.off
    assert [record.getMessage() for record in caplog.records if "another process failed" in record.getMessage()]


def test_a_sequence_of_one_token_has_gap_1_and_no_path(tmp_path: Path) -> None:
    fit = trainer(tmp_path, AttentionGraph())
    fit.fit(task(), FewReviews([[5], [6]]))
    logged = fit.callback_metrics
    assert logged["attention/spectral_gap"] == 1
    assert logged["attention_detail/entropy"] == 1
    assert logged["attention_detail/max_hops"] == 0
    assert "attention/mean_hops" not in logged


def test_wrong_arguments_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="sequences must be at least 1, got 0"):
        AttentionGraph(sequences=0)
    with pytest.raises(
        ValueError, match=r"heads must be distinct indices >= 0, got \[1, 1\]; omit heads to select all"
    ):
        SpectralGap(heads=[1, 1])
    with pytest.raises(ValueError, match=r"layers must lie in \[0, 1\], got 2; the attention layers are encoder"):
        trainer(tmp_path, AttentionGraph(layers=[2])).fit(task(), FewReviews())
    with pytest.raises(ValueError, match=r"heads must lie in \[0, 1\], got 7; encoder.layers.0.self_attn has 2 heads"):
        trainer(tmp_path, AttentionGraph(heads=[7])).fit(task(), FewReviews())


def test_the_probe_is_distributed_over_processes() -> None:
    assert probe_indices(10, 4) == [0, 2, 5, 7]
    assert probe_indices(2, 4) == [0, 1]
    loader = FewReviews().val_dataloader()
    whole = probe_batch(loader, 3).lengths
    parts = [probe_batch(loader, 3, rank=rank, world_size=2).lengths for rank in range(2)]
    assert [*parts[0], *parts[1]] == [whole[0], whole[2], whole[1]]
    assert probe_batch(loader, 1, rank=1, world_size=2) is None
    with pytest.raises(ValueError, match="no validation data"):
        probe_batch(None, 3)


def test_align_undoes_a_reflection() -> None:
    points = torch.randn(9, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    flipped = points * torch.tensor([-1.0, 1.0], dtype=torch.float64)
    torch.testing.assert_close(align(flipped, points), points)
    with pytest.raises(ValueError, match=r"must both be \(n, c\), got \(9, 2\) and \(8, 2\)"):
        align(points, points[:8])


CONFIG = """
trainer:
  callbacks:
    - class_path: AttentionGraph
      init_args: {sequences: 3, max_length: 32}
    - class_path: AttentionGraph
      init_args: {sequences: 1, max_length: 32, every_n_steps: 1}
"""


def test_two_processes_log_the_same_as_one(tmp_path: Path) -> None:
    (tmp_path / "watch.yaml").write_text(CONFIG)
    logged = []
    for devices in (1, 2):
        words = ["fit", "--config", "reviews_fna.yaml", "--config", "watch.yaml", "--trainer.accelerator=cpu"]
        words += [f"--trainer.devices={devices}", "--trainer.max_epochs=1", "--data.train_size=32"]
        # a learning rate of 0: the number of processes changes the batches, and with them the training
        words += ["--data.eval_size=12", "--data.longest=40", "--model.optimizer.lr=0"]
        words += ["--trainer.enable_progress_bar=false", f"--trainer.default_root_dir={devices}"]
        words += ["--trainer.strategy=ddp"] if devices > 1 else []
        environment = {**os.environ, "FNA_RUN_DIR": "", "OMP_NUM_THREADS": "1", "PYTHONSAFEPATH": "1"}
        command = [sys.executable, "-m", "fna_lightning.cli", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=240, check=False
        )
        assert done.returncode == 0, done.stderr
        assert "is off" not in done.stderr
        (path,) = (tmp_path / str(devices)).glob("*/version_0/metrics.csv")
        table = list(csv.DictReader(path.open()))
        (epoch,) = [row for row in table if row["val/accuracy"]]
        logged.append({name: float(value) for name, value in epoch.items() if name.startswith("attention") and value})
    assert len(logged[0]) == len(MEASURES)
    assert logged[1] == pytest.approx(logged[0], abs=1e-5)


def test_learned_alpha_and_kappa_are_logged(tmp_path: Path) -> None:
    model = task(Fractional(1.5, kappa=2.0, learn=["alpha", "kappa"]))
    trainer(tmp_path, AttentionGraph(sequences=2, figures=False), max_epochs=1).fit(model, FewReviews())
    *_, last = [row for row in rows(tmp_path) if row["heads/encoder.layers.0.self_attn/1/alpha"]]
    for number, layer in enumerate(model.encoder.layers):
        for name, values in layer.self_attn.learned_values().items():
            for head, value in enumerate(values.tolist()):
                logged = float(last[f"heads/encoder.layers.{number}.self_attn/{head}/{name}"])
                assert logged == pytest.approx(value, abs=1e-6)
                assert logged != pytest.approx({"alpha": 1.5, "kappa": 2.0}[name], abs=1e-6)
    means = [float(row["attention_detail/alpha"]) for row in rows(tmp_path) if row["attention_detail/alpha"]]
    heads = [value for layer in model.encoder.layers for value in layer.self_attn.learned_values()["alpha"].tolist()]
    assert means[-1] == pytest.approx(sum(heads) / len(heads), abs=1e-6)
