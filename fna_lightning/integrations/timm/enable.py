"""Switching a timm model to FNA and back."""

import logging
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from fna_lightning.attention import DotProduct, ExternalAttention, Fractional
from fna_lightning.attention.kappa import Kappa
from fna_lightning.integrations.calibration import calibrate_cores, run_on
from fna_lightning.integrations.multihead import exchange
from fna_lightning.integrations.timm.interception import CORE, FractionalLayer, install, uninstall
from fna_lightning.integrations.timm.layers import Inspection, head_shape, inspect_model

log = logging.getLogger("fna_lightning")

Model = TypeVar("Model", bound=nn.Module)
# how many refused layers an error names
_NAMED = 4


def enable(
    model: Model,
    alpha: float = 1.2,
    kappa: Kappa | Mapping[str, Sequence[float]] = "vision",
    *,
    batch: Any = None,
    partial: bool = False,
    **options: Any,
) -> Model:
    """Replace dot-product attention by FNA in every attention layer of a timm model, and return the model.

    Projections, norms, position biases, rotary embeddings and dropout stay, and so do the names of all parameters.

    Args:
        model: a model of timm, or one that contains such a model.
        alpha: Levy index in [1, 2]; 2 is the Gaussian.
        kappa: a positive number, a rule ("vision" or "text"), {name of the layer: one number per head}, or "auto",
            which calibrates every head to the mean row entropy of the model's own attention.
        batch: the input on which "auto" calibrates: images, a tuple of arguments or a mapping of keyword arguments.
            Without it, random images are used and a warning is logged.
        partial: accept a model in which FNA cannot replace some of the attention layers. By default this is an error
            that names them.
        options: further settings of ``Fractional``: ``learn``, ``kernel``, ``intrinsic_dim``, ``exclude_self``.

    Example:
        >>> import timm
        >>> model = enable(timm.create_model("vit_tiny_patch16_224", img_size=32, depth=1), alpha=1.6)
        >>> model.blocks[0].attn.fna.attention
        Fractional(alpha=1.6, kappa=vision)
    """
    layers = _supported(model, partial)
    Fractional(alpha, "auto" if isinstance(kappa, Mapping) else kappa, **options)
    if isinstance(kappa, str) and kappa == "auto":
        if batch is None:
            kappa = _random_kappa(model, alpha, partial)
        else:
            kappa = calibrated_kappa(model, batch, alpha, partial=partial)
    names = [*layers.replaceable, *layers.multihead]
    if isinstance(kappa, Mapping) and (missing := [name for name in names if name not in kappa]):
        raise ValueError(f"kappa has no value for the attention layer {missing[0]!r}; it needs one for each layer")
    for name, layer in layers.replaceable.items():
        attention = Fractional(alpha, kappa[name] if isinstance(kappa, Mapping) else kappa, **options)
        _install(layer, attention)
    for name in layers.multihead:
        exchange(model, name, alpha, kappa[name] if isinstance(kappa, Mapping) else kappa, **options)
    return model


def disable(model: Model) -> Model:
    """Restore timm's own attention in every layer, and return the model."""
    for layer in inspect_model(model).replaceable.values():
        if isinstance(layer, FractionalLayer):
            uninstall(layer)
    return model


def calibrated_kappa(
    model: nn.Module, batch: Any, alpha: float = 1.2, *, partial: bool = False
) -> dict[str, list[float]]:
    """Return {name of the layer: kappa of each head}; the model is not changed.

    The arguments are those of ``enable``.
    """
    layers = _supported(model, partial)
    if layers.multihead:
        raise ValueError(
            f"kappa cannot be calibrated for {next(iter(layers.multihead))!r}, an nn.MultiheadAttention inside a timm "
            "model; give kappa as a number or a rule"
        )
    changed = [layer for layer in layers.replaceable.values() if not isinstance(layer, FractionalLayer)]
    for layer in changed:
        _install(layer, DotProduct())
    try:
        cores = {name: _core(layer) for name, layer in layers.replaceable.items()}
        return calibrate_cores(model, cores, lambda: run_on(model, batch), alpha)
    finally:
        for layer in changed:
            assert isinstance(layer, FractionalLayer)
            uninstall(layer)


def _random_kappa(model: nn.Module, alpha: float, partial: bool) -> dict[str, list[float]]:
    """Return kappas calibrated on random images."""
    log.warning("kappa='auto' without a batch is calibrated on random images; pass batch= to use your data")
    images = random_images(model)
    try:
        return calibrated_kappa(model, images, alpha, partial=partial)
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"kappa='auto' is calibrated on a batch, and {type(model).__name__} does not take random images of "
            f"{images.size(-2)} x {images.size(-1)} pixels; pass batch=, a tensor of images"
        ) from error


def random_images(model: nn.Module) -> Tensor:
    """Return reproducible random images of the size a timm model was built for."""
    sizes = [getattr(part, "img_size", None) for part in model.modules()]
    size = next((size for size in sizes if isinstance(size, int | tuple)), None)
    configuration = getattr(model, "pretrained_cfg", None) or {}
    channels, *default = configuration.get("input_size", (3,))
    if size is None and not default:
        raise ValueError(
            f"kappa='auto' is calibrated on a batch, and the image size of {type(model).__name__} is unknown; pass "
            "batch=, a tensor of images"
        )
    height, width = default if size is None else (size, size) if isinstance(size, int) else size
    weight = next((part.weight for part in model.modules() if isinstance(part, nn.Conv2d | nn.Linear)), torch.zeros(1))
    images = torch.randn(2, channels, height, width, generator=torch.Generator().manual_seed(0))
    return images.to(weight.device, weight.dtype)


def _supported(model: nn.Module, partial: bool) -> Inspection:
    """Return the attention layers of a model, or raise if FNA cannot replace them."""
    layers = inspect_model(model)
    refused = "; ".join(f"{name}: {reason}" for name, reason in list(layers.refused.items())[:_NAMED])
    refused += f"; and {len(layers.refused) - _NAMED} more" if len(layers.refused) > _NAMED else ""
    replaceable = len(layers.replaceable) + len(layers.multihead)
    if not replaceable:
        raise ValueError(
            f"FNA cannot replace any attention layer of {type(model).__name__}: {refused}"
            if refused
            else f"{type(model).__name__} has no attention layer, so there is nothing FNA could replace; use a "
            "transformer such as vit_tiny_patch16_224"
        )
    if refused and not partial:
        raise ValueError(
            f"FNA can replace {replaceable} of the {replaceable + len(layers.refused)} attention layers of "
            f"{type(model).__name__}; pass partial=True to replace only those. The others: {refused}"
        )
    return layers


def _install(layer: nn.Module, attention: Fractional | DotProduct) -> None:
    shape = head_shape(layer)
    assert shape is not None, "a layer without a known shape is refused"
    core = ExternalAttention(attention, *shape).train(layer.training)
    parameter = next(layer.parameters(), None)
    install(layer, core if parameter is None else core.to(parameter.device))


def _core(layer: nn.Module) -> ExternalAttention:
    core = layer.get_submodule(CORE)
    assert isinstance(core, ExternalAttention)
    return core
