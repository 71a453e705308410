"""Switching an existing transformers model to FNA and back."""

import logging
from collections.abc import Iterator, Mapping
from typing import Any, TypeVar

from transformers import PreTrainedModel

from fna_lightning.attention.kappa import Kappa
from fna_lightning.integrations.hf.calibration import calibrated_kappa, random_batch
from fna_lightning.integrations.hf.layers import attach, detach, interface_layers, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME, Settings

log = logging.getLogger("fna_lightning")

Model = TypeVar("Model", bound=PreTrainedModel)


def enable(
    model: Model,
    alpha: float = 1.2,
    kappa: Kappa | Mapping[str, Any] = "auto",
    *,
    batch: Mapping[str, Any] | None = None,
) -> Model:
    """Replace dot-product attention by FNA in every attention layer, and return the model.

    The weights do not change. ``model.save_pretrained`` saves alpha and kappa with the configuration.

    Args:
        model: a transformers model whose attention uses AttentionInterface; others are an error.
        alpha: Levy index in [1, 2]; 2 is the Gaussian.
        kappa: a positive number, a rule ("text" or "vision"), one number per head, or "auto", which calibrates every
            head to the mean row entropy of the model's own attention.
        batch: keyword arguments of a call of the model, on which "auto" calibrates. Without it, random inputs are used
            and a warning is logged.

    Example:
        >>> from transformers import BertConfig, BertModel
        >>> tiny = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2)
        >>> enable(BertModel(tiny), alpha=1.2, kappa="text").config._attn_implementation
        'fna'
    """
    refuse_unsupported(model)
    if isinstance(kappa, str) and kappa == "auto":
        Settings(alpha)
        if batch is None:
            log.warning("kappa='auto' without a batch is calibrated on random inputs; pass batch= to use your data")
            batch = random_batch(model)
        kappa = calibrated_kappa(model, batch, alpha)
        if missing := sorted(set(interface_layers(model)) - kappa.keys()):
            raise ValueError(
                f"the batch did not reach the attention layer {missing[0]!r}, so its kappa is not calibrated; pass a "
                "batch that runs the whole model (an encoder-decoder also needs decoder_input_ids)"
            )
    settings = Settings(alpha, kappa)
    for config in _configs(model):
        settings.write(config)
    attach(model, settings)
    model.set_attn_implementation(NAME)
    return model


def disable(model: Model, attn_implementation: str = "sdpa") -> Model:
    """Restore the dot-product attention of a model, and return the model."""
    for config in _configs(model):
        Settings.remove(config)
    detach(model)
    model.set_attn_implementation(attn_implementation)
    return model


def _configs(model: PreTrainedModel) -> Iterator[Any]:
    """Yield every configuration of the model once; parts of a model may have their own copies (T5)."""
    yield from {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}.values()
