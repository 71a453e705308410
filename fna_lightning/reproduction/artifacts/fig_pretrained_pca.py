"""Principal components of the embeddings of pretrained models."""

from importlib.util import find_spec

import torch
from torch import Tensor

from fna_lightning.plotting.graphs import COLORS
from fna_lightning.reproduction.artifact import Finding, Piece, Table
from fna_lightning.reproduction.context import Bench
from fna_lightning.reproduction.drawing import legend, panels
from fna_lightning.reproduction.scales import Scale

# how the names of their tables end
TABLES = {
    "words": ("word_embeddings.weight", "wte.weight"),
    "positions": ("position_embeddings.weight", "wpe.weight"),
}
MODELS = ("albert-base-v2", "bert-base-uncased", "gpt2")


def explained(points: Tensor) -> Tensor:
    """Return the cumulative share of variance of the principal components of (n, d) points."""
    centred = (points - points.mean(dim=0)).double()
    variance = torch.linalg.eigvalsh(centred.mT @ centred).flip(0).clamp(min=0.0)
    return variance.cumsum(0) / variance.sum()


def components_for(share: float, cumulative: Tensor) -> int:
    """Return how many components carry ``share`` of the variance."""
    return int((cumulative < share - 1e-12).sum().item()) + 1


def refusal(_: Scale) -> str:
    """Return why not: no library to load them with."""
    if find_spec("transformers") is None:
        return "needs the library `transformers` (pip install transformers) and the hub, for the pretrained weights"
    return ""


def load(name: str) -> dict[str, Tensor]:
    """Return the weights of a pretrained model: from the library's cache, else from the hub."""
    from transformers import AutoModel

    try:
        return AutoModel.from_pretrained(name, local_files_only=True).state_dict()
    except OSError:
        return AutoModel.from_pretrained(name).state_dict()


def run(bench: Bench) -> Finding:
    """Draw the variance that the first components carry."""
    finding, lines = Finding(), []
    figure, (axes,) = panels(1, 5.2)
    for number, name in enumerate(MODELS):
        try:
            weights = load(name)
        except OSError as error:
            reason = str(error).strip().partition("\n")[0]
            return Finding(not_run=f"needs the hub for {', '.join(MODELS)}, and {name} cannot be had: {reason}")
        for what, ends in TABLES.items():
            points = next(value for key, value in weights.items() if key.endswith(ends))
            cumulative = explained(points)
            style = "-" if what == "words" else "--"
            place = range(1, len(cumulative) + 1)
            axes.plot(place, cumulative, style, color=COLORS[number], label=f"{name}, {what}")
            counts = [str(components_for(share, cumulative)) for share in (0.5, 0.9, 0.99)]
            lines.append([f"{name}, {what}", str(points.size(1)), *counts])
    axes.set(xscale="log", xlabel="components", ylabel="share of variance")
    legend(axes, 7)
    finding.figures[bench.save(figure, "pca")] = "Variance carried by the first principal components."
    columns = ["", "d", "50 %", "90 %", "99 %"]
    finding.tables.append(Table("components that carry a share of the variance", columns, lines))
    return finding


PIECE = Piece(
    "fig-pretrained-pca",
    "Embeddings of pretrained models",
    "Embeddings of ALBERT, BERT and GPT-2 lie near a space of fewer dimensions.",
    run,
    refusal=refusal,
)
