"""Artifacts: complete, exact for theory, and correct for runs with known results."""

import re
from dataclasses import replace

import pytest
import torch
import yaml

from fna_lightning.errors import UsageError
from fna_lightning.reproduction.artifacts import (
    all_artifacts,
    attribution,
    fig_grid,
    fig_path,
    fig_pretrained_pca,
    prop_1,
    select_artifacts,
)
from fna_lightning.reproduction.artifacts.fig_pretrained_pca import components_for, explained_variance
from fna_lightning.reproduction.bandwidth import WIDTHS, kernel_width, matched_kappa
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.families import small_cells
from fna_lightning.reproduction.paper import deviations, paper_values
from fna_lightning.reproduction.scales import PAPER, SCALES, SMALL, SMOKE
from fna_lightning.reproduction.verdict import verdict

from helpers.fake_runs import finish

# tables and figures of the paper, followed by artifacts the paper does not have
NAMES = """fig-spectrum fig-tokens prop-1 generator
fig-grid fig-ablation fig-gap fig-diffusion-map fig-path fig-hops fig-hops-length table-imdb table-sphere
fig-cifar table-translation fig-pretrained-pca controls attribution paper-recipes scoreboard fields"""


@pytest.fixture
def context(tmp_path) -> Context:
    return Context(SMALL, tmp_path / "runs", tmp_path / "artifact")


def test_every_table_and_figure_exists() -> None:
    assert list(all_artifacts()) == NAMES.split()
    assert list(select_artifacts(["prop-1", "fig-grid"])) == ["prop-1", "fig-grid"]
    with pytest.raises(UsageError, match="unknown artifact 'fig-9'; choose from fig-spectrum"):
        select_artifacts(["fig-9"])


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
def test_cells_have_different_folders(scale, tmp_path) -> None:
    cells = {
        cell
        for artifact in all_artifacts().values()
        if not artifact.skip_reason(scale)
        for cell in artifact.cells(scale)
    }
    assert len({cell.folder(tmp_path) for cell in cells}) == len(cells)
    assert len(cells) >= 40


@pytest.mark.parametrize("name", ["fig-spectrum", "fig-tokens", "prop-1", "generator"])
def test_theory_is_reproduced(name, context) -> None:
    result = all_artifacts()[name].run(context)
    assert result.rows
    assert {row.label: verdict(row) for row in result.rows if verdict(row) != "reproduced"} == {}
    assert all((context.folder / picture).stat().st_size > 3000 for picture in result.figures)


def test_the_proposition_fails_without_its_assumptions() -> None:
    attention = prop_1.Fractional(1.2)
    assert prop_1.largest_difference(attention, 0) < 1e-14
    assert prop_1.largest_difference(attention, 0, heads=2) > 1e-3
    assert prop_1.largest_difference(attention, 0, orthogonal=False) > 1e-3


def test_grid_rows_and_claims(context) -> None:
    accuracies = {"fna": (0.83, 0.84, 0.85), "la": (0.80, 0.81, 0.82), "dp": (0.83, 0.85, 0.83)}
    for name, values in accuracies.items():
        finish(small_cells(SMALL, name), context.runs, values)
    result = fig_grid.run(context)
    rows = {row.label: row for row in result.rows}
    assert rows["FNA, Q != K, d = 8"].ours == pytest.approx(84.0)
    assert rows["FNA, Q != K, d = 8"].half_width == pytest.approx(2.484, abs=1e-3)
    assert verdict(rows["FNA, Q != K, d = 8"]) == "not comparable"
    assert rows["FNA, Q != K, d = 8"].reason == "shorter training"
    assert verdict(rows["DP, Q = K, d = 8"]) == "not run"
    assert "has not been trained" in rows["DP, Q = K, d = 8"].reason
    claims = {claim.label: claim for claim in result.claims}
    assert verdict(claims["FNA above LA, Q != K, d = 8"]) == "reproduced"
    assert claims["FNA above LA, Q != K, d = 8"].published == pytest.approx(5.0)
    assert verdict(claims["FNA above DP, Q != K, d = 8"]) == "differs"
    assert verdict(claims["FNA above uniform, Q != K, d = 8"]) == "not run"


def test_grid_draws_curves_for_several_widths(tmp_path) -> None:
    context = Context(PAPER, tmp_path / "runs", tmp_path / "artifact")
    for dim in (8, 16):
        finish(small_cells(PAPER, "fna", dim=dim), context.runs, [0.8, 0.81, 0.82, 0.83, 0.84])
    result = fig_grid.run(context)
    rows = {row.label: row for row in result.rows}
    assert verdict(rows["FNA, Q != K, d = 16"]) == "differs"
    assert "FNA, Q != K, d = 16, 2 layers" in rows
    assert (context.folder / "grid.png").stat().st_size > 3000


def test_fully_trained_numbers_are_comparable(tmp_path) -> None:
    context = Context(PAPER, tmp_path / "runs", tmp_path / "artifact")
    cells = small_cells(PAPER, "dp")
    finish(cells, context.runs, [0.741, 0.742, 0.740, 0.741, 0.741])
    assert verdict(context.row("DP", cells, 74.1, tolerance=0.3)) == "reproduced"
    assert verdict(context.row("DP", cells, 79.0, tolerance=0.3)) == "differs"


def test_row_of_a_failed_run_contains_the_error(context) -> None:
    cell = small_cells(SMALL, "fna")[0]
    log = cell.start(context.runs) / "log.txt"
    log.write_text("epoch 1\n")
    assert context.row("FNA", [cell], 83.2).reason == f"{cell.label} seed 0: has not finished"
    log.write_text(f"epoch 1\nRuntimeError: no room in {context.runs}/x\n")
    assert context.row("FNA", [cell], 83.2).reason == f"{cell.label} seed 0: RuntimeError: no room in RUNS/x"


def test_attribution_is_paired_by_seed(context) -> None:
    everything = attribution.CHOICES["all together, Q != K"]
    for name, values in (("fna", (0.83, 0.84)), ("dp", (0.74, 0.74))):
        finish(attribution.choice_cells(SMALL, name, everything), context.runs, values)
    result = attribution.run(context)
    row = next(row for row in result.rows if row.label.endswith("Q != K"))
    assert row.ours == pytest.approx(9.5)
    assert row.paper == pytest.approx(9.1)
    line = next(line for line in result.tables[0].lines if line[0] == "all together, Q != K")
    assert line[1] == "83.50 ± 6.35"
    assert line[-1] == "+9.50 ± 6.35"


def test_attribution_includes_controls_with_full_training(context) -> None:
    base = attribution.CHOICES[attribution.BASE]
    for name, value in (("fna", 0.83), ("uniform", 0.80)):
        finish(attribution.choice_cells(PAPER, name, base), context.runs, (value,) * PAPER.few_seeds)
    (table,) = attribution.run(replace(context, scale=PAPER)).tables
    assert table.columns[-1] == "FNA - uniform"
    assert table.lines[0][-1] == "+3.00 ± 0.00"


def test_attribution_changes_one_setting_at_a_time() -> None:
    base = set(attribution.choice_cells(SMALL, "fna", attribution.CHOICES[attribution.BASE])[0].overrides)
    changed = {
        label: set(attribution.choice_cells(SMALL, "fna", choice)[0].overrides) - base
        for label, choice in attribution.CHOICES.items()
    }
    assert changed["softmax twice"] == {("model.softmax_twice", "true")}
    assert changed["frozen random positions"] == {("model.embedding.positions", "random")}
    assert len(changed["all together, Q = K"]) == 6
    # The authors' code excludes self-pairs for FNA and LA, but not for DP.
    dp = attribution.choice_cells(SMALL, "dp", attribution.CHOICES["all together, Q = K"])[0].overrides
    assert ("model.attention.exclude_self", "true") not in dp


def test_small_scale_shares_run_folders_with_sweep(tmp_path) -> None:
    """The name is that of `sweep --set trainer.max_epochs=3 --set ...milestones=[2] --set ...progress_bar=false`."""
    cell = small_cells(SMALL, "fna", tied=True)[0]
    assert cell.folder(tmp_path).parent.name == "imdb_small_fna_tied=true_dc01d4"
    assert cell.overrides == (("model.encoder.projection.tied", "true"),)


def test_further_settings_change_the_run_folder(tmp_path) -> None:
    other = SMALL.with_settings((("trainer.devices", "2"),))
    small_cell, other_cell = (small_cells(scale, "fna")[0] for scale in (SMALL, other))
    assert "--trainer.devices=2" in other_cell.arguments()
    assert small_cell.folder(tmp_path) != other_cell.folder(tmp_path)


@pytest.mark.parametrize("measure", WIDTHS)
def test_matched_gaussian_is_as_wide_as_fna(measure) -> None:
    kappa = matched_kappa(8, measure)
    assert kernel_width(measure, 2.0, kappa, 8) == pytest.approx(kernel_width(measure, 1.2, "auto", 8), rel=1e-5)
    # The kappa of the paper's Gaussian is sqrt(8).
    assert kappa > 1.3 * 8**0.5


def test_related_positions_are_those_of_a_repeated_word() -> None:
    assert fig_path.related_positions(["a", "film", "of", "a", " Film", "x"]) == (1, 4)
    assert fig_path.related_positions(["a", "b", "c"]) == (0, 2)


def test_principal_components_of_points_in_a_plane() -> None:
    torch.manual_seed(0)
    points = torch.randn(100, 2) @ torch.randn(2, 7)
    cumulative = explained_variance(points)
    assert cumulative[1].item() == pytest.approx(1.0)
    assert components_for(0.999, cumulative) == 2


def test_pretrained_embeddings(context, monkeypatch) -> None:
    torch.manual_seed(0)
    tables = {"x.word_embeddings.weight": torch.randn(50, 3) @ torch.randn(3, 8), "x.wpe.weight": torch.randn(20, 8)}
    monkeypatch.setattr(fig_pretrained_pca, "load", lambda _: tables)
    result = fig_pretrained_pca.run(context)
    assert [line[-1] for line in result.tables[0].lines[:2]] == ["3", "8"]

    def fail(name: str) -> dict:
        raise OSError(f"no {name} here\nmore")

    monkeypatch.setattr(fig_pretrained_pca, "load", fail)
    assert "albert-base-v2 is not available: no albert-base-v2 here" in fig_pretrained_pca.run(context).not_run


def test_deviations_are_complete() -> None:
    keys = {"topic", "paper", "code", "ours", "effect"}
    assert len(deviations()) >= 15
    for deviation in deviations():
        assert set(deviation) == keys
        assert all(isinstance(text, str) and text for text in deviation.values())
    # The deviations refer to rows of the attribution table.
    labels = re.findall(r'row "([^"]+)"', yaml.safe_dump(deviations(), width=10_000))
    assert len(labels) >= 4
    assert set(labels) <= set(attribution.CHOICES)


def test_paper_values_are_complete() -> None:
    assert set(paper_values()) == {"spectrum", "tokens", "grid", "imdb", "sphere", "cifar", "translation", "graph"}
    assert all(len(values) == 4 for side in ("tied", "untied") for values in paper_values()["grid"][side].values())


def test_smoke_trains_on_embedded_data_only() -> None:
    artifacts = [artifact for artifact in all_artifacts().values() if not artifact.skip_reason(SMOKE)]
    cells = [cell for artifact in artifacts for cell in artifact.cells(SMOKE)]
    assert len(cells) >= 40
    for cell in cells:
        embedded_config = "digits" in cell.config or "numbers" in cell.config
        assert embedded_config or dict(cell.fixed).get("data") == "ReviewData", cell.label
