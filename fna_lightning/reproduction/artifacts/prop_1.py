"""Proposition 1: with one head and orthogonal projections, one rotation is sufficient."""

import torch
from torch import Tensor

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical
from fna_lightning.reproduction.artifact import Artifact, Result, Row, Table
from fna_lightning.reproduction.context import Context

DRAWS = 50
DIM = 16
EXACT = 1e-12


def largest_difference(attention: Attention, seed: int, *, heads: int = 1, orthogonal: bool = True) -> float:
    """Return the largest change of a weight when W_Q is replaced by I and W_K by W_Q^T W_K, for random matrices."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 20, DIM, generator=generator, dtype=torch.float64)
    w_q, w_k = torch.randn(2, DIM, DIM, generator=generator, dtype=torch.float64).unbind()
    if orthogonal:
        w_q, w_k = torch.linalg.qr(w_q)[0], torch.linalg.qr(w_k)[0]

    def weights(q: Tensor, k: Tensor) -> Tensor:
        q, k = (x.unflatten(-1, (heads, -1)).transpose(1, 2) for x in (q, k))
        return attention.weights(q, k)

    # Tokens are rows: q = x W_Q^T, so the product of both matrices is W_Q^T W_K.
    before = weights(x @ w_q.T, x @ w_k.T)
    after = weights(x, x @ (w_q.T @ w_k).T)
    return (before - after).abs().max().item()


def run(context: Context) -> Result:
    """Check the proposition on random matrices, and that it fails without its assumptions."""
    attentions = {
        "dot product": DotProduct(),
        "R^d, alpha = 1.2": Fractional(1.2),
        "R^d, alpha = 2": Fractional(2.0),
        "sphere, alpha = 1.2": Spherical(1.2),
    }
    result, lines = Result(), []
    for name, attention in attentions.items():
        difference = max(largest_difference(attention, seed) for seed in range(DRAWS))
        result.rows.append(Row(f"largest difference, {name}", difference, 0.0, tolerance=EXACT, digits=16))
        two_heads = min(largest_difference(attention, seed, heads=2) for seed in range(DRAWS))
        not_orthogonal = min(largest_difference(attention, seed, orthogonal=False) for seed in range(DRAWS))
        lines.append([name, f"{two_heads:.1e}", f"{not_orthogonal:.1e}"])
    columns = ["", "two heads", "matrices not orthogonal"]
    result.tables.append(Table("without the assumptions: smallest of the largest differences", columns, lines))
    result.notes.append(
        f"{DRAWS} random pairs of matrices in O({DIM}), 20 tokens, float64. The dot product needs no orthogonality, "
        "because it depends only on the product of both matrices."
    )
    return result


ARTIFACT = Artifact(
    "prop-1",
    "Proposition 1",
    "With one head, W_Q and W_K in O(d) give the same attention as the identity and W_Q^T W_K.",
    run,
)
