"""The five projections of the paper's table, and its Proposition 1."""

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from fna_lightning.attention import (
    Attention,
    DotProduct,
    Fractional,
    LinearProjection,
    MultiheadAttention,
    OrthogonalProjection,
    Spherical,
)

D = 12


def parameters(module: nn.Module) -> int:
    return sum(p.numel() for p in module.parameters())


@pytest.mark.parametrize(
    ("projection", "heads", "matrices", "query_is_identity"),
    [
        (LinearProjection(D, 1), 1, 2, False),
        (LinearProjection(D, 1, tied=True), 1, 1, False),
        (LinearProjection(D, 3), 3, 2, False),
        (LinearProjection(D, 3, tied=True), 3, 1, False),
        (OrthogonalProjection(D, 1), 1, 1, True),
        (OrthogonalProjection(D, 1, tied=True), 1, 0, True),
        (OrthogonalProjection(D, 3), 3, 2, False),
        (OrthogonalProjection(D, 3, tied=True), 3, 1, False),
    ],
    ids=str,
)
def test_rows_of_the_table(projection: nn.Module, heads: int, matrices: int, query_is_identity: bool) -> None:
    assert parameters(projection) == matrices * D * D
    x = torch.randn(2, 5, D)
    q, k = projection(x, x)
    assert torch.equal(q, x) == query_is_identity
    assert torch.equal(q, k) == projection.tied
    context = torch.randn(2, 4, D)
    assert projection(x, context)[1].shape == (2, 4, D)


@pytest.mark.parametrize("group_map", ["matrix_exp", "cayley", "householder"])
def test_orthogonal_maps_stay_orthogonal_in_training(group_map: str) -> None:
    torch.manual_seed(0)
    layer = MultiheadAttention(
        D, 3, Fractional(), lambda dim, heads: OrthogonalProjection(dim, heads, group_map=group_map)
    )
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
    before = layer.projection.query.weight.detach().clone()
    for _ in range(20):
        optimizer.zero_grad()
        layer(torch.randn(4, 6, D)).square().mean().backward()
        optimizer.step()
    for linear in (layer.projection.query, layer.projection.key):
        assert_close(linear.weight @ linear.weight.mT, torch.eye(D), rtol=0, atol=1e-5)
    assert (layer.projection.query.weight - before).abs().max() > 1e-2


@pytest.mark.parametrize("attention", [Fractional(1.2), Fractional(2.0), Spherical(1.2), DotProduct()], ids=repr)
def test_proposition_1_one_rotation_is_enough(attention: Attention) -> None:
    """With one head, (W_Q, W_K) in O(d) gives the attention of (I, W_Q^T W_K)."""
    x = torch.randn(2, 1, 9, D, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    w_q, w_k = (torch.linalg.qr(torch.randn(D, D, dtype=torch.float64)).Q for _ in range(2))
    both = attention.weights(x @ w_q.mT, x @ w_k.mT)
    single = attention.weights(x, x @ (w_q.mT @ w_k).mT)
    assert_close(both, single, rtol=0, atol=1e-12)


def test_value_and_output_maps_are_linear_with_one_bias() -> None:
    layer = MultiheadAttention(D, 3, DotProduct())
    assert layer.value.bias is None
    assert layer.out.bias is not None
    assert parameters(layer) == 4 * D * D + D
