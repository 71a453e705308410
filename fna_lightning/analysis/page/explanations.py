"""The names of measures on the page, and what they mean."""

from typing import Any

from fna_lightning.graph import MEASURES

# label, decimals, explanation
_TEXTS = {
    "spectral_gap": (
        "spectral gap",
        3,
        """1 minus the second largest modulus of the eigenvalues. 1: a random walk along the weights forgets its start
        in one step; near 0: it stays in a part of the text. Uniform attention has 1 too: compare the entropy.""",
    ),
    "entropy": (
        "entropy",
        3,
        """Mean entropy of the rows divided by its maximum. 0: each token attends to one token; 1: to all tokens
        equally.""",
    ),
    "tv_to_uniform": (
        "TV to uniform",
        3,
        """Mean total variation distance of the rows from uniform weights. 0: uniform; near 1: concentrated on few
        tokens.""",
    ),
    "effective_rank": (
        "effective rank",
        2,
        "Exponential of the entropy of the singular values. 1: uniform attention; number of tokens: a permutation.",
    ),
    "effective_neighbors": (
        "neighbors",
        2,
        """Effective number of neighbors: exponential of the entropy of a row, mean over the rows. 1: each token attends
        to one token; m: to m tokens equally.""",
    ),
    "direction": (
        "direction",
        3,
        """Share of the weight that has no counterpart in the opposite direction. 0: each pair of tokens exchanges as
        much as it receives; 1: no pair exchanges anything.""",
    ),
    "algebraic_connectivity": (
        "connectivity",
        3,
        """Second smallest eigenvalue of the normalized Laplacian of the symmetrized graph. 0: the graph falls into
        parts; 1: uniform attention.""",
    ),
    "mean_hops": ("mean hops", 3, "Mean number of hops of the cheapest paths between tokens; a hop costs 1 / weight."),
    "max_hops": ("max hops", 0, "Largest number of hops of a cheapest path between two tokens."),
    "unreachable": ("unreachable", 0, "Number of ordered pairs of tokens without a path of positive weights."),
}


def measure_texts() -> dict[str, dict[str, Any]]:
    """Return label, decimals and explanation of each of ``graph.MEASURES``."""
    texts = {name: _TEXTS.get(name, (name.replace("_", " "), 3, "")) for name in MEASURES}
    return {
        name: {"label": label, "digits": digits, "help": " ".join(text.split())}
        for name, (label, digits, text) in texts.items()
    }
