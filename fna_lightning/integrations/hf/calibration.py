"""Calibration of kappa per head to the dot-product attention the model was trained with.

The entropy of a row of FNA grows with kappa, so bisection finds for each head the kappa at which the mean row entropy
on a batch equals that of the model's own attention for the same queries and keys.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fna_lightning.attention import DotProduct, ExternalAttention, Fractional
from fna_lightning.attention.masks import build_mask, masked_softmax
from fna_lightning.integrations.hf.layers import CORE, add_core, interface_layers, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME
from fna_lightning.introspection.layers import LayerCall, layer_call
from fna_lightning.introspection.maps import evaluating

log = logging.getLogger("fna_lightning")

# kappa is searched between these multiples of the mean distance
MIN_FACTOR, MAX_FACTOR = 1e-4, 1e6
BISECTIONS = 40
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
            hook = _calibrator(name, alpha, padding_mask, kappas)
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


def _calibrator(name: str, alpha: float, padding_mask: Any, kappas: dict[str, list[float]]) -> Callable[..., None]:
    """Return a forward pre-hook of an attention core that stores the calibrated kappas of its layer."""

    def calibrate(core: ExternalAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = layer_call(core, args, kwargs)
        kappas[name] = _matched_kappa(call, alpha, _query_rows(call, padding_mask), name)

    return calibrate


def _query_rows(call: LayerCall, padding_mask: Any) -> Tensor:
    """Return (B, H, N) booleans, True for real tokens that may attend to more than one key."""
    mask = build_mask(**call.masking)
    n, m = call.q.size(-2), call.k.size(-2)
    allowed = mask.matrix(n, m, call.q.device)
    counts = torch.full((1, 1, n, 1), m) if allowed is None else allowed.sum(dim=-1, keepdim=True)
    rows = (counts > 1).to(call.q.device).squeeze(-1).expand(*call.q.shape[:-1])
    if isinstance(padding_mask, Tensor) and padding_mask.shape == (call.q.size(0), n):
        rows = rows & (padding_mask > 0)[:, None, :]
    return rows


def _matched_kappa(call: LayerCall, alpha: float, rows: Tensor, name: str) -> list[float]:
    """Return the kappa of each head at which FNA has the mean row entropy of the recorded attention."""
    target = _mean_entropy(call.weights(), rows)
    attention = Fractional(alpha)
    distance = attention.distance(call.q, call.k)
    mask = build_mask(**call.masking)
    allowed = mask.matrix(call.q.size(-2), call.k.size(-2), call.q.device)

    def entropy(kappa: Tensor) -> Tensor:
        logits = attention.log_profile(distance, kappa[:, None, None], attention.exponent(call.q))
        if mask.bias is not None:
            logits = logits + mask.bias
        return _mean_entropy(masked_softmax(logits, allowed), rows)

    mean_distance = distance.mean(dim=(0, 2, 3)).clamp(min=torch.finfo(distance.dtype).tiny)
    low, high = (mean_distance * MIN_FACTOR).log(), (mean_distance * MAX_FACTOR).log()
    unreachable = entropy(low.exp()) > target + 1e-3
    if unreachable.any():
        log.warning(
            "%s: %d of %d heads are sharper than FNA with alpha = %g can be; they get the smallest kappa",
            name, int(unreachable.sum()), len(unreachable), alpha,
        )  # fmt: skip
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        too_wide = entropy(middle.exp()) > target
        low, high = low.where(too_wide, middle), high.where(~too_wide, middle)
    return ((low + high) / 2).exp().tolist()


def _mean_entropy(weights: Tensor, rows: Tensor) -> Tensor:
    """Return the (H,) mean entropies of the selected rows."""
    entropies = torch.special.entr(weights.double()).sum(dim=-1)
    rows = rows.expand_as(entropies)
    return (entropies * rows).sum(dim=(0, 2)) / rows.sum(dim=(0, 2)).clamp(min=1)
