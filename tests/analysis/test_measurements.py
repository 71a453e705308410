"""Intervals of the ablation, summaries, and readable names of layers."""

import math

import pytest
import torch

from fna_lightning.analysis.layer_names import readable_layers
from fna_lightning.analysis.measurements import mean_interval, share_interval, summary
from fna_lightning.analysis.report import Summary


def test_the_interval_of_a_sample_is_students() -> None:
    # mean 0.5, standard deviation 0.1 over four examples, t(0.975, 3) = 3.18245
    values = torch.tensor([[0.4, 0.4, 0.6, 0.6]])
    mean, low, high = mean_interval(values, sampled=True)
    half = 3.182446 * math.sqrt(0.04 / 3) / 2
    assert (mean, low, high) == (pytest.approx(0.5), pytest.approx(0.5 - half), pytest.approx(0.5 + half))
    # several draws of the same examples do not make the sample larger
    assert mean_interval(values.expand(8, 4), sampled=True) == pytest.approx((mean, low, high))


def test_the_interval_of_fixed_texts_is_over_the_draws() -> None:
    # two texts, whose values differ between texts but not between draws
    assert mean_interval(torch.tensor([[0.2, 0.8], [0.2, 0.8]]), sampled=False) == pytest.approx((0.5, 0.5, 0.5))
    mean, low, high = mean_interval(torch.tensor([[0.4], [0.6]]), sampled=False)
    assert mean == pytest.approx(0.5)
    # t(0.975, 1) = 12.706 times 0.1 exceeds the range of a probability
    assert (low, high) == (0.0, 1.0)
    assert mean_interval(torch.tensor([[0.4]]), sampled=False) == (pytest.approx(0.4), 0.0, 1.0)


def test_the_interval_of_an_accuracy_is_wilsons() -> None:
    correct = torch.tensor([[True] * 8 + [False] * 2])
    # Wilson, 8 of 10: 0.4902 ... 0.9433
    assert share_interval(correct, sampled=True) == (
        0.8,
        pytest.approx(0.49016, abs=1e-4),
        pytest.approx(0.94332, abs=1e-4),
    )
    assert share_interval(correct.expand(5, 10), sampled=True) == pytest.approx(share_interval(correct, sampled=True))
    _, low, high = share_interval(correct.expand(5, 10), sampled=False)
    assert high - low < 0.25


def test_summaries_leave_out_values_that_are_not_finite() -> None:
    assert summary([1.0, math.nan, 3.0, math.inf]) == Summary(2.0, 1.0, 2)
    assert summary([math.nan]) is None


SEQ2SEQ = [f"network.{part}" for part in ("encoder.layers.0.self_attn", "decoder.layers.0.self_attn")]
T5 = [f"{side}.block.1.layer.0.SelfAttention" for side in ("encoder", "decoder")]


@pytest.mark.parametrize(
    ("names", "readable"),
    [
        (["encoder.layers.0.self_attn", "encoder.layers.1.self_attn"], ["layer 1", "layer 2"]),
        (["model.bert.encoder.layer.0.attention.self"], ["layer 1"]),
        (["blocks.0.attn", "blocks.10.attn"], ["layer 1", "layer 11"]),
        (["network.cross_attn"], ["layer 1"]),
        (
            [*SEQ2SEQ, "network.decoder.layers.0.cross_attn"],
            ["encoder layer 1", "decoder layer 1", "decoder layer 1 (cross)"],
        ),
        (
            [*T5, "decoder.block.1.layer.1.EncDecAttention"],
            ["encoder layer 2", "decoder layer 2", "decoder layer 2 (cross)"],
        ),
        # names that would be the same stay as they are
        (["a.0.attn", "b.0.attn"], ["a.0.attn", "b.0.attn"]),
        (["first", "second"], ["first", "second"]),
        ([""], ["layer 1"]),
    ],
)
def test_readable_names_of_layers(names: list[str], readable: list[str]) -> None:
    assert readable_layers(names) == dict(zip(names, readable, strict=True))
