"""The artifacts in the order of the paper, followed by those that the paper does not have."""

from importlib import import_module

from fna_lightning.errors import UsageError
from fna_lightning.reproduction.artifact import Artifact

MODULES = (
    "fig_spectrum",
    "fig_tokens",
    "prop_1",
    "generator_limit",
    "fig_grid",
    "fig_ablation",
    "fig_gap",
    "fig_diffusion_map",
    "fig_path",
    "fig_hops",
    "fig_hops_length",
    "table_imdb",
    "table_sphere",
    "fig_cifar",
    "table_translation",
    "fig_pretrained_pca",
    "controls",
    "attribution",
    "paper_recipes",
    "scoreboard",
    "fields",
)


def all_artifacts() -> dict[str, Artifact]:
    """Return every artifact by name."""
    artifacts = [import_module(f"{__name__}.{module}").ARTIFACT for module in MODULES]
    return {artifact.name: artifact for artifact in artifacts}


def select_artifacts(names: list[str]) -> dict[str, Artifact]:
    """Return the artifacts with the given names, or all of them if ``names`` is empty."""
    available = all_artifacts()
    for name in names:
        if name not in available:
            raise UsageError(f"unknown artifact {name!r}; choose from {', '.join(available)}")
    return {name: artifact for name, artifact in available.items() if not names or name in names}
