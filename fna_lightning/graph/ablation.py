"""Ablation: remove random edges or nodes of the attention graph."""

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

    The rule is the same for every attention: removed weights become 0 and the remaining weights of a row are rescaled.
    A row with no remaining weight is 0, so its query attends to nothing; a softmax over masked scores would make such a
    row uniform.

    Args:
        weights: (..., n, m); cross-attention is allowed. Padded keys have weight 0 and keep it.
        p: probability of removal, in [0, 1].
        kind: "edges" draws for each query-key pair (the paper's Results section); "nodes" draws for each key of a
            matrix and removes it for all queries (the paper's Methods section).
        renormalise: whether the remaining weights are rescaled to the original row sum, as masking before the softmax
            does; False leaves the row sum reduced.
        generator: source of randomness, on the device of ``weights``.
    """
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"p must lie in [0, 1], got {p}; it is the probability of removing each of the {kind}")
    if kind not in KINDS:
        raise ValueError(f"unknown kind {kind!r}; choose one of {', '.join(KINDS)}")
    shape = weights.shape if kind == "edges" else (*weights.shape[:-2], 1, weights.size(-1))
    kept = torch.rand(shape, generator=generator, device=weights.device, dtype=torch.float32) >= p
    remaining = weights * kept
    if not renormalise:
        return remaining
    row_sums = remaining.sum(dim=-1, keepdim=True)
    return torch.where(row_sums > 0, remaining * (weights.sum(dim=-1, keepdim=True) / row_sums), 0.0)
