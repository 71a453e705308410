"""Calibration of kappa per head for transformers models."""

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fna_lightning.attention import DotProduct
from fna_lightning.integrations.calibration import calibrator
from fna_lightning.integrations.hf.layers import CORE, add_core, interface_layers, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME
from fna_lightning.introspection.maps import evaluating

RANDOM_TOKENS = 64


def calibrated_kappa(model: PreTrainedModel, batch: Mapping[str, Any], alpha: float = 1.2) -> dict[str, list[float]]:
    """Return {name of the layer: kappa of each head}; the model is not changed.

    Args:
        model: a model whose attention uses transformers' AttentionInterface.
        batch: keyword arguments of a call of the model, e.g. ``tokenizer(texts, padding=True, return_tensors="pt")``.
        alpha: Levy index of FNA.
    """
    refuse_unsupported(model)
    padding_mask = batch.get("attention_mask")
    kappas: dict[str, list[float]] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(model))
        stack.enter_context(dot_product_cores(model))
        for name, layer in interface_layers(model).items():
            core = layer.get_submodule(CORE)
            hook = calibrator(name, alpha, padding_mask, kappas)
            stack.callback(core.register_forward_pre_hook(hook, with_kwargs=True).remove)
        model(**batch)
    return kappas


@contextmanager
def dot_product_cores(model: PreTrainedModel) -> Iterator[None]:
    """Compute the model's own dot-product attention in attention cores, where it can be recorded."""
    configs = {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}.values()
    before = [(config, config._attn_implementation_internal) for config in configs]
    layers = list(interface_layers(model).values())
    cores = [layer._modules.get(CORE) for layer in layers]
    for layer in layers:
        add_core(layer, DotProduct())
    for config in configs:
        config._attn_implementation_internal = NAME
    try:
        yield
    finally:
        for config, name in before:
            config._attn_implementation_internal = name
        for layer, core in zip(layers, cores, strict=True):
            del layer._modules[CORE]
            if core is not None:
                layer.add_module(CORE, core)


def random_batch(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return reproducible random inputs of a model; a calibration on them is only a starting point."""
    generator = torch.Generator().manual_seed(0)
    config = model.config
    if model.main_input_name == "pixel_values" and isinstance(getattr(config, "image_size", None), int):
        shape = (2, config.num_channels, config.image_size, config.image_size)
        return {"pixel_values": torch.randn(shape, generator=generator).to(model.device, model.dtype)}
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if model.main_input_name != "input_ids" or vocabulary is None:
        raise ValueError(
            f"kappa='auto' is calibrated on a batch, and random inputs cannot be created for {type(model).__name__} "
            f"(it takes {model.main_input_name}); pass batch=, the keyword arguments of a call of the model"
        )
    longest = getattr(config, "max_position_embeddings", None) or RANDOM_TOKENS
    ids = torch.randint(vocabulary, (2, min(RANDOM_TOKENS, longest // 2)), generator=generator).to(model.device)
    return {"input_ids": ids, "decoder_input_ids": ids} if config.is_encoder_decoder else {"input_ids": ids}
