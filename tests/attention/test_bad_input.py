"""Invalid settings and inputs raise errors that name the value, the rule and the remedy."""

from typing import Any

import pytest
import torch

from fna_lightning import attention_weights, fractional_attention
from fna_lightning.attention import DotProduct, Fractional, MultiheadAttention, OrthogonalProjection

from helpers.attention_cases import qkv


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"alpha": 0.5}, r"alpha must lie in \[1, 2\].*got 0.5"),
        ({"alpha": 3.0}, r"alpha must lie in \[1, 2\].*got 3.0"),
        ({"alpha": float("nan")}, r"alpha must lie in \[1, 2\].*got nan"),
        ({"kappa": -1.0}, "kappa must be positive and finite, got -1.0; give a positive number or one of auto, text"),
        ({"kappa": 0.0}, "kappa must be positive and finite, got 0.0"),
        ({"kappa": float("inf")}, "kappa must be positive and finite, got inf"),
        ({"kappa": "image"}, "unknown kappa rule 'image'; .*text, vision, sphere"),
        ({"intrinsic_dim": -2.0}, "intrinsic_dim must be positive, got -2.0"),
        ({"dropout": 1.0}, r"dropout must lie in \[0, 1\), got 1.0"),
        ({"density_power": 2.0}, r"density_power must lie in \[0, 1\].*got 2.0"),
        ({"kernel": "fast"}, "unknown kernel 'fast'; choose one of auto"),
    ],
    ids=str,
)
def test_a_setting_outside_its_range(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Fractional(**settings)


def test_a_mask_of_the_wrong_shape_names_both_shapes() -> None:
    q, k, v = qkv()
    with pytest.raises(
        ValueError, match=r"shape \(2, 7\) does not broadcast to \(2, 3, 5, 7\).*mask\[:, None, None, :\]"
    ):
        fractional_attention(q, k, v, attn_mask=torch.ones(2, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"shape \(4, 2, 3, 5, 7\) does not broadcast"):
        fractional_attention(q, k, v, attn_mask=torch.ones(4, 2, 3, 5, 7, dtype=torch.bool))


def test_a_mask_that_is_neither_boolean_nor_floating_point() -> None:
    q, k, v = qkv()
    with pytest.raises(TypeError, match=r"boolean \(True = may attend\) or floating-point .* got torch.int64; convert"):
        fractional_attention(q, k, v, attn_mask=torch.zeros(5, 7, dtype=torch.int64))
    with pytest.raises(TypeError, match=r"bias must be a floating-point tensor.*got torch.bool"):
        Fractional()(q, k, v, bias=torch.ones(5, 7, dtype=torch.bool))
    with pytest.raises(ValueError, match=r"attn_mask of shape \(5, 6\) does not broadcast to \(2, 3, 5, 7\)"):
        fractional_attention(q, k, v, attn_mask=torch.zeros(5, 6))


def test_queries_and_keys_of_different_width() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match="same width, got 4 and 8"):
        fractional_attention(q[..., :4], k, v)


def test_self_exclusion_and_density_need_self_attention() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match=r"exclude_self needs self-attention.*5 queries and 7 keys"):
        fractional_attention(q, k, v, exclude_self=True)
    with pytest.raises(ValueError, match=r"density_power needs self-attention.*5 queries and 7 keys"):
        Fractional(density_power=1.0)(q, k, v)


def test_an_unknown_manifold_and_dropout() -> None:
    q, k, v = qkv()
    with pytest.raises(ValueError, match="unknown manifold 'torus'; choose one of euclidean, sphere"):
        attention_weights(q, k, manifold="torus")
    with pytest.raises(ValueError, match=r"dropout_p must lie in \[0, 1\), got 1.5"):
        fractional_attention(q, k, v, dropout_p=1.5)


def test_a_width_that_is_not_a_multiple_of_the_heads() -> None:
    with pytest.raises(ValueError, match=r"dim \(10\) must be a multiple of num_heads \(3\)"):
        MultiheadAttention(10, 3, DotProduct())


def test_an_unknown_group_map() -> None:
    with pytest.raises(ValueError, match="unknown group_map 'exp'; choose one of matrix_exp, cayley"):
        OrthogonalProjection(8, 2, group_map="exp")
