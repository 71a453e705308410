"""Proposition 1: with one head and orthogonal maps, one rotation is enough."""

import torch
from torch import Tensor

from fna_lightning.attention import Attention, DotProduct, Fractional, Spherical
from fna_lightning.reproduction.artifact import Finding, Piece, Row, Table
from fna_lightning.reproduction.context import Bench

DRAWS = 50
DIM = 16
EXACT = 1e-12


def largest_difference(attention: Attention, seed: int, *, heads: int = 1, orthogonal: bool = True) -> float:
    """Return max |A(x W_Q, x W_K) - A(x, x W_Q^-1 ... )|: attention before and after W_Q -> I, W_K -> W_Q^T W_K."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(1, 20, DIM, generator=generator, dtype=torch.float64)
    w_q, w_k = torch.randn(2, DIM, DIM, generator=generator, dtype=torch.float64).unbind()
    if orthogonal:
        w_q, w_k = torch.linalg.qr(w_q)[0], torch.linalg.qr(w_k)[0]

    def weights(q: Tensor, k: Tensor) -> Tensor:
        q, k = (one.unflatten(-1, (heads, -1)).transpose(1, 2) for one in (q, k))
        return attention.weights(q, k)

    # tokens are rows: q = x W_Q^T, so the product of both maps is W_Q^T W_K
    before = weights(x @ w_q.T, x @ w_k.T)
    after = weights(x, x @ (w_q.T @ w_k).T)
    return (before - after).abs().max().item()


def run(bench: Bench) -> Finding:
    """Try it on random maps; and where it must fail."""
    kinds = {
        "dot product": DotProduct(),
        "R^d, alpha = 1.2": Fractional(1.2),
        "R^d, alpha = 2": Fractional(2.0),
        "sphere, alpha = 1.2": Spherical(1.2),
    }
    finding, lines = Finding(), []
    for name, attention in kinds.items():
        worst = max(largest_difference(attention, seed) for seed in range(DRAWS))
        finding.rows.append(Row(f"largest difference, {name}", worst, 0.0, tolerance=EXACT, digits=16))
        two = min(largest_difference(attention, seed, heads=2) for seed in range(DRAWS))
        free = min(largest_difference(attention, seed, orthogonal=False) for seed in range(DRAWS))
        lines.append([name, f"{two:.1e}", f"{free:.1e}"])
    columns = ["", "two heads", "maps not orthogonal"]
    finding.tables.append(Table("where it must fail: the smallest of the largest differences", columns, lines))
    finding.notes.append(
        f"{DRAWS} random pairs of maps in O({DIM}), 20 tokens, float64. The dot product needs no orthogonality: it "
        "knows only the product of both maps."
    )
    return finding


PIECE = Piece(
    "prop-1",
    "Proposition 1",
    "With one head, W_Q and W_K in O(d) attend as the identity and W_Q^T W_K do.",
    run,
)
