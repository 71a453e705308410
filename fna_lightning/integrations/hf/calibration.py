"""kappa of each head such that FNA is as sharp as the dot-product attention the model was trained with.

The entropy of a row of FNA grows with kappa, so one bisection a head finds the kappa at which the mean entropy of its
rows on a batch is that of the model's own attention on the same queries and keys.
"""

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

from fna_lightning.attention import DotProduct, ExternalAttention, Fractional
from fna_lightning.attention.masks import masked_softmax, restrict
from fna_lightning.integrations.hf.layers import SITE, interface_layers, put_site, refuse_unsupported
from fna_lightning.integrations.hf.settings import NAME
from fna_lightning.introspection.layers import LayerCall, layer_call
from fna_lightning.introspection.maps import evaluating

log = logging.getLogger("fna_lightning")

# kappa is looked for between these multiples of the mean distance
LEAST, MOST = 1e-4, 1e6
HALVINGS = 40
MADE_UP_TOKENS = 64


def calibrated_kappa(model: PreTrainedModel, batch: Mapping[str, Any], alpha: float = 1.2) -> dict[str, list[float]]:
    """Return kappa of each head by the name of its layer; the model is left as it was.

    Args:
        model: a model whose attention follows transformers' interface.
        batch: what the model is called with, e.g. ``tokenizer(texts, padding=True, return_tensors="pt")``.
        alpha: Levy index of the FNA to be calibrated.
    """
    refuse_unsupported(model)
    real = batch.get("attention_mask")
    found: dict[str, list[float]] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(model))
        stack.enter_context(own_attention(model))
        for name, host in interface_layers(model).items():
            site = host.get_submodule(SITE)
            hook = _calibrator(name, alpha, real, found)
            stack.callback(site.register_forward_pre_hook(hook, with_kwargs=True).remove)
        model(**batch)
    return found


@contextmanager
def own_attention(model: PreTrainedModel) -> Iterator[None]:
    """Compute the model's own dot-product attention, but at sites, where it can be watched."""
    configs = {id(part.config): part.config for part in model.modules() if isinstance(part, PreTrainedModel)}.values()
    before = [(config, config._attn_implementation_internal) for config in configs]
    hosts = list(interface_layers(model).values())
    sites = [host._modules.get(SITE) for host in hosts]
    for host in hosts:
        put_site(host, DotProduct())
    for config in configs:
        config._attn_implementation_internal = NAME
    try:
        yield
    finally:
        for config, name in before:
            config._attn_implementation_internal = name
        for host, site in zip(hosts, sites, strict=True):
            del host._modules[SITE]
            if site is not None:
                host.add_module(SITE, site)


def made_up_batch(model: PreTrainedModel) -> dict[str, Tensor]:
    """Return random inputs for a model, the same every time: a calibration on them is a start, not an answer."""
    generator = torch.Generator().manual_seed(0)
    config = model.config
    if model.main_input_name == "pixel_values" and isinstance(getattr(config, "image_size", None), int):
        shape = (2, config.num_channels, config.image_size, config.image_size)
        return {"pixel_values": torch.randn(shape, generator=generator).to(model.device, model.dtype)}
    vocabulary = getattr(config.get_text_config(), "vocab_size", None)
    if model.main_input_name != "input_ids" or vocabulary is None:
        raise ValueError(
            f"kappa='auto' calibrates on a batch, and no inputs can be made up for {type(model).__name__} (it takes "
            f"{model.main_input_name}); pass batch=, what the model is called with"
        )
    longest = getattr(config, "max_position_embeddings", None) or MADE_UP_TOKENS
    ids = torch.randint(vocabulary, (2, min(MADE_UP_TOKENS, longest // 2)), generator=generator).to(model.device)
    return {"input_ids": ids, "decoder_input_ids": ids} if config.is_encoder_decoder else {"input_ids": ids}


def _calibrator(name: str, alpha: float, real: Any, found: dict[str, list[float]]) -> Callable[..., None]:
    def calibrate(site: ExternalAttention, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        call = layer_call(site, args, kwargs)
        found[name] = _matched(call, alpha, _query_rows(call, real), name)

    return calibrate


def _query_rows(call: LayerCall, real: Any) -> Tensor:
    """Return (B, H, N) True where a row counts: a real token that sees more than one key."""
    seen = restrict(**call.masking)
    n, m = call.q.size(-2), call.k.size(-2)
    allowed = seen.matrix(n, m, call.q.device)
    counts = torch.full((1, 1, n, 1), m) if allowed is None else allowed.sum(dim=-1, keepdim=True)
    rows = (counts > 1).to(call.q.device).squeeze(-1).expand(*call.q.shape[:-1])
    if isinstance(real, Tensor) and real.shape == (call.q.size(0), n):
        rows = rows & (real > 0)[:, None, :]
    return rows


def _matched(call: LayerCall, alpha: float, rows: Tensor, name: str) -> list[float]:
    target = _mean_entropy(call.weights(), rows)
    attention = Fractional(alpha)
    distance = attention.distance(call.q, call.k)
    seen = restrict(**call.masking)
    allowed = seen.matrix(call.q.size(-2), call.k.size(-2), call.q.device)

    def entropy(kappa: Tensor) -> Tensor:
        logits = attention.log_profile(distance, kappa[:, None, None], attention.exponent(call.q))
        if seen.bias is not None:
            logits = logits + seen.bias
        return _mean_entropy(masked_softmax(logits, allowed), rows)

    middle = distance.mean(dim=(0, 2, 3)).clamp(min=torch.finfo(distance.dtype).tiny)
    low, high = (middle * LEAST).log(), (middle * MOST).log()
    sharpest = entropy(low.exp())
    if (sharp := sharpest > target + 1e-3).any():
        log.warning(
            "%s: %d of %d heads are sharper than FNA of alpha = %g can be; they get the sharpest",
            name, int(sharp.sum()), len(sharp), alpha,
        )  # fmt: skip
    for _ in range(HALVINGS):
        half = (low + high) / 2
        too_wide = entropy(half.exp()) > target
        low, high = low.where(too_wide, half), high.where(~too_wide, half)
    return ((low + high) / 2).exp().tolist()


def _mean_entropy(weights: Tensor, rows: Tensor) -> Tensor:
    """Return the (H,) mean entropies of the rows that count."""
    every = torch.special.entr(weights.double()).sum(dim=-1)
    rows = rows.expand_as(every)
    return (every * rows).sum(dim=(0, 2)) / rows.sum(dim=(0, 2)).clamp(min=1)
