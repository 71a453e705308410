"""Principal components of the embeddings of pretrained models."""

from importlib.util import find_spec

import torch
from torch import Tensor

from fna_lightning.errors import first_line
from fna_lightning.plotting.style import COLORS
from fna_lightning.reproduction.artifact import Artifact, Result, Table
from fna_lightning.reproduction.context import Context
from fna_lightning.reproduction.drawing import legend, panels
from fna_lightning.reproduction.scales import Scale

# suffixes of the parameter names of the embedding tables
TABLES = {
    "words": ("word_embeddings.weight", "wte.weight"),
    "positions": ("position_embeddings.weight", "wpe.weight"),
}
MODELS = ("albert-base-v2", "bert-base-uncased", "gpt2")


def explained_variance(points: Tensor) -> Tensor:
    """Return the cumulative share of variance of the principal components of (n, d) points."""
    centered = (points - points.mean(dim=0)).double()
    variance = torch.linalg.eigvalsh(centered.mT @ centered).flip(0).clamp(min=0.0)
    return variance.cumsum(0) / variance.sum()


def components_for(share: float, cumulative: Tensor) -> int:
    """Return the number of components that explain ``share`` of the variance."""
    return int((cumulative < share - 1e-12).sum().item()) + 1


def skip_reason(_: Scale) -> str:
    """Return why the weights cannot be loaded: transformers is not installed."""
    if find_spec("transformers") is None:
        return "needs the package `transformers` (pip install transformers) and the hub for the pretrained weights"
    return ""


def load(name: str) -> dict[str, Tensor]:
    """Return the weights of a pretrained model, from the local cache or from the hub."""
    from transformers import AutoModel

    try:
        return AutoModel.from_pretrained(name, local_files_only=True).state_dict()
    except OSError:
        return AutoModel.from_pretrained(name).state_dict()


def run(context: Context) -> Result:
    """Draw the variance explained by the first components."""
    result, lines = Result(), []
    figure, (axes,) = panels(1, 5.2)
    for number, name in enumerate(MODELS):
        try:
            weights = load(name)
        except OSError as error:
            reason = first_line(error)
            return Result(not_run=f"needs {', '.join(MODELS)} from the hub; {name} is not available: {reason}")
        for table, suffixes in TABLES.items():
            points = next(value for key, value in weights.items() if key.endswith(suffixes))
            cumulative = explained_variance(points)
            style = "-" if table == "words" else "--"
            components = range(1, len(cumulative) + 1)
            axes.plot(components, cumulative, style, color=COLORS[number], label=f"{name}, {table}")
            counts = [str(components_for(share, cumulative)) for share in (0.5, 0.9, 0.99)]
            lines.append([f"{name}, {table}", str(points.size(1)), *counts])
    axes.set(xscale="log", xlabel="components", ylabel="share of variance")
    legend(axes, 7)
    result.figures[context.save(figure, "pca")] = "Variance explained by the first principal components."
    columns = ["", "d", "50 %", "90 %", "99 %"]
    result.tables.append(Table("number of components that explain a share of the variance", columns, lines))
    return result


ARTIFACT = Artifact(
    "fig-pretrained-pca",
    "Embeddings of pretrained models",
    "Embeddings of ALBERT, BERT and GPT-2 lie close to a subspace of fewer dimensions.",
    run,
    skip_reason=skip_reason,
)
