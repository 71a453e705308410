"""Ablation: cut the graph at random and see what survives."""

import torch
from torch import Tensor

KINDS = ("edges", "nodes")


def ablate(
    weights: Tensor,
    p: float,
    *,
    kind: str = "edges",
    renormalise: bool = True,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Return ``weights`` with each edge, or each node, removed with probability ``p``.

    The rule is the same for every attention: what is removed is masked, what survives shares the row as it did before.
    A row left empty is 0: it attends to nothing, where a softmax of masked scores would turn it uniform.

    Args:
        weights: (..., n, m); cross-attention too. Padded keys have weight 0 and stay so.
        p: probability of removal, in [0, 1].
        kind: "edges" draws for each pair (the paper's Results); "nodes" for each key of a matrix, for all its queries
            (the paper's Methods).
        renormalise: whether surviving rows are brought back to their sum, as masking before the softmax does; False
            leaves the weight that was removed missing.
        generator: source of randomness, on the device of ``weights``.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p must lie in [0, 1], got {p}; it is the probability of removing each of the {kind}")
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; choose one of {', '.join(KINDS)}")
    shape = weights.shape if kind == "edges" else (*weights.shape[:-2], 1, weights.size(-1))
    kept = torch.rand(shape, generator=generator, device=weights.device, dtype=torch.float32) >= p
    survivors = weights * kept
    if not renormalise:
        return survivors
    left = survivors.sum(dim=-1, keepdim=True)
    return torch.where(left > 0, survivors * (weights.sum(dim=-1, keepdim=True) / left), 0.0)
