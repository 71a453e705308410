"""One function that switches a model of transformers, timm or plain PyTorch to FNA."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import nn

from fna_lightning.attention import Attention, ExternalAttention, Fractional, FractionalMultiheadAttention
from fna_lightning.attention.kappa import Kappa
from fna_lightning.integrations.calibration import calibrate_cores, run_on
from fna_lightning.integrations.multihead import exchange, put
from fna_lightning.introspection.layers import attention_layers

TRANSFORMERS, TIMM, MULTIHEAD = "transformers", "timm", "nn.MultiheadAttention"


@dataclass(frozen=True)
class Replacement:
    """An attention layer that computes FNA.

    Attributes:
        name: name of the layer in the model.
        kind: "transformers", "timm" or "nn.MultiheadAttention".
        attention: the attention it computes now.
    """

    name: str
    kind: str
    attention: Attention


def enable(
    model: nn.Module,
    alpha: float = 1.2,
    kappa: Kappa | Mapping[str, Sequence[float]] | None = None,
    *,
    batch: Any = None,
    partial: bool = False,
    **options: Any,
) -> list[Replacement]:
    """Replace dot-product attention by FNA in a model, in place, and return what was replaced.

    The weights do not change. A model of transformers is switched by ``integrations.hf.enable``, one of timm by
    ``integrations.timm.enable``. In other models every ``nn.MultiheadAttention`` is exchanged by a
    ``FractionalMultiheadAttention`` with the same parameters. The model may also be part of the given module.

    Args:
        model: the model to change.
        alpha: Levy index in [1, 2]; 2 is the Gaussian.
        kappa: a positive number, a rule ("text" or "vision"), or "auto", which calibrates every head on ``batch`` to
            the mean row entropy of the model's own attention. None is "vision" for timm and "text" for other models.
        batch: the input on which "auto" calibrates: one argument, a tuple of arguments or a mapping of keyword
            arguments of the model.
        partial: accept a timm model in which FNA cannot replace some of the attention layers.
        options: further settings of ``Fractional``, such as ``learn=["kappa"]``; not for models of transformers.

    Raises:
        ValueError: if the model contains no attention that can be replaced.

    Example:
        >>> model = nn.TransformerEncoder(nn.TransformerEncoderLayer(16, 2, batch_first=True), 1)
        >>> for layer in enable(model, kappa="text"):
        ...     print(layer.name, layer.kind, layer.attention)
        layers.0.self_attn nn.MultiheadAttention Fractional(alpha=1.2, kappa=text)
    """
    pretrained = _transformers_models(model)
    inside = {part for pretrained_model in pretrained for part in pretrained_model.modules()}
    has_timm = any(_is_timm(part) for part in model.modules() if part not in inside)
    if pretrained and has_timm:
        raise ValueError(
            f"{type(model).__name__} contains models of transformers and of timm; call enable for each of them"
        )
    if pretrained:
        _enable_transformers(model, pretrained, alpha, kappa, batch, options)
        return _replacements(model, TRANSFORMERS)
    if has_timm:
        from fna_lightning.integrations.timm import enable as enable_timm

        enable_timm(model, alpha, "vision" if kappa is None else kappa, batch=batch, partial=partial, **options)
        return _replacements(model, TIMM)
    _enable_multihead(model, alpha, "text" if kappa is None else kappa, batch, options)
    return _replacements(model, MULTIHEAD)


def _enable_transformers(
    model: nn.Module, parts: list[Any], alpha: float, kappa: Any, batch: Any, options: dict[str, Any]
) -> None:
    from fna_lightning.integrations.hf import enable as enable_transformers

    if options:
        raise ValueError(
            f"models of transformers take alpha and kappa, which are saved with their configuration, but not "
            f"{', '.join(options)}"
        )
    if batch is not None and parts != [model]:
        raise ValueError(
            f"kappa is calibrated on the inputs of the transformers model inside {type(model).__name__}; call enable "
            f"for that {type(parts[0]).__name__}"
        )
    for part in parts:
        enable_transformers(part, alpha, "text" if kappa is None else kappa, batch=batch)


def _enable_multihead(model: nn.Module, alpha: float, kappa: Any, batch: Any, options: dict[str, Any]) -> None:
    names = [name for name, module in model.named_modules() if type(module) is nn.MultiheadAttention]
    if isinstance(model, nn.MultiheadAttention):
        raise ValueError(
            "an nn.MultiheadAttention cannot exchange itself; create a FractionalMultiheadAttention and load its "
            "state_dict"
        )
    if not names:
        raise ValueError(
            f"{type(model).__name__} contains no model of transformers or timm and no nn.MultiheadAttention, so enable "
            "cannot replace its attention; call fna_lightning.fractional_attention in its code"
        )
    calibrate = isinstance(kappa, str) and kappa == "auto"
    if calibrate and batch is None:
        raise ValueError("kappa='auto' is calibrated on a batch; pass batch=, the arguments of a call of the model")
    Fractional(alpha, kappa, **options)
    originals = {name: model.get_submodule(name) for name in names}
    layers = {name: exchange(model, name, alpha, kappa, **options) for name in names}
    if not calibrate:
        return
    try:
        cores = {name: layer.core for name, layer in layers.items()}
        kappas = calibrate_cores(model, cores, lambda: run_on(model, batch), alpha)
    except Exception:
        for name, module in originals.items():
            put(model, layers[name], module)
        raise
    for name, core in cores.items():
        core.attention = Fractional(alpha, kappas[name], **options).for_heads(core.num_heads).train(core.training)
        core.to(layers[name].out_proj.weight.device)


def _replacements(model: nn.Module, kind: str) -> list[Replacement]:
    """Return the layers of a model whose attention is computed by a core."""
    return [
        Replacement(
            name,
            MULTIHEAD if isinstance(model.get_submodule(name), FractionalMultiheadAttention) else kind,
            layer.attention,
        )
        for name, layer in attention_layers(model).items()
        if isinstance(layer, ExternalAttention)
    ]


def _transformers_models(model: nn.Module) -> list[nn.Module]:
    """Return the outermost models of transformers in a model."""
    parts: list[nn.Module] = []
    inside: set[nn.Module] = set()
    for part in model.modules():
        # Compared by name, so that transformers is not imported for other models.
        if part not in inside and any(base.__name__ == "PreTrainedModel" for base in type(part).__mro__):
            parts.append(part)
            inside.update(part.modules())
    return parts


def _is_timm(module: nn.Module) -> bool:
    """Return whether the class of a module is one of timm, or derived from one."""
    return any(base.__module__.partition(".")[0] == "timm" for base in type(module).__mro__)
