"""Calibration of kappa per head to the dot-product attention a model was trained with.

The entropy of a row of FNA grows with kappa, so bisection finds for each head the kappa at which the mean row entropy
on a batch equals that of the model's own attention for the same queries and keys.
"""

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor, nn

from fna_lightning.attention import DotProduct, ExternalAttention, Fractional
from fna_lightning.attention.masks import build_mask, masked_softmax
from fna_lightning.introspection.layers import LayerCall, layer_call
from fna_lightning.introspection.maps import evaluating

log = logging.getLogger("fna_lightning")

# kappa is searched between these multiples of the mean distance
MIN_FACTOR, MAX_FACTOR = 1e-4, 1e6
BISECTIONS = 40


def calibrate_cores(
    model: nn.Module, cores: Mapping[str, ExternalAttention], run: Callable[[], Any], alpha: float
) -> dict[str, list[float]]:
    """Return {name of the layer: kappa of each head}; the cores keep their attention.

    Args:
        model: the model that contains the cores.
        cores: attention cores by the name of their layer, which compute the model's own attention if their attention
            is ``DotProduct``.
        run: runs the model on a batch.
        alpha: Levy index of FNA.
    """
    kappas: dict[str, list[float]] = {}
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        stack.enter_context(evaluating(model))
        for name, core in cores.items():
            stack.callback(setattr, core, "attention", core.attention)
            core.attention = DotProduct()
            hook = calibrator(name, alpha, None, kappas)
            stack.callback(core.register_forward_pre_hook(hook, with_kwargs=True).remove)
        run()
    if missing := sorted(cores.keys() - kappas.keys()):
        raise ValueError(
            f"the batch did not reach the attention layer {missing[0]!r}, so its kappa is not calibrated; pass a batch "
            "that runs the whole model"
        )
    return kappas


def run_on(model: nn.Module, batch: Any) -> Any:
    """Call a model with a batch: a mapping of keyword arguments, a tuple of arguments, or one argument."""
    if isinstance(batch, Mapping):
        return model(**batch)
    return model(*batch) if isinstance(batch, tuple) else model(batch)


def calibrator(name: str, alpha: float, padding_mask: Any, kappas: dict[str, list[float]]) -> Callable[..., None]:
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
