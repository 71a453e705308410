"""State of the metrics of a training epoch, so that an interrupted epoch reports the metrics of the whole epoch."""

from typing import Any

import lightning as L
import torch
from torch import Tensor
from torchmetrics import Metric

from fna_lightning.errors import UsageError

# Reductions of step values to an epoch value. A checkpoint may name no other function of torch.
REDUCTIONS = ("mean", "sum", "max", "min")
# arguments of `LightningModule.log` that are saved for each logged value
LOGGED = ("prog_bar", "logger", "on_step", "on_epoch", "add_dataloader_idx", "metric_attribute")


def metric_state(trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
    """Return the accumulated state of all metrics of the current training epoch, as plain values and tensors."""
    results = {
        key: _logged(metric) for key, metric in trainer.fit_loop.epoch_loop._results.items() if not metric.has_reset
    }
    return {"results": results, "metrics": _metric_sums(module), "callback_metrics": _plain(trainer.callback_metrics)}


def set_metric_state(trainer: L.Trainer, module: L.LightningModule, state: dict[str, Any]) -> None:
    """Set all metrics to a state that ``metric_state`` returned."""
    for name, metric in _metrics(module):
        saved = state["metrics"].get(name)
        if saved is not None:
            for key, value in saved["states"].items():
                setattr(metric, key, _copy_to(metric.device, value))
            metric._update_count = saved["updates"]
            metric._computed = None
    for entry in state["results"].values():
        _log_again(trainer, module, entry)
    trainer._logger_connector._callback_metrics.update(state["callback_metrics"])


def add_results(trainer: L.Trainer, entries: dict[str, Any]) -> None:
    """Add the accumulated values of ``entries`` to values that this process has already logged."""
    results = trainer.fit_loop.epoch_loop._results
    for key, entry in entries.items():
        metric = results.get(key)
        for name, saved in entry.get("states", {}).items() if metric is not None else ():
            value = getattr(metric, name)
            both = torch.stack([value, saved.to(value)])
            setattr(metric, name, _reduced(both, entry["reduce_fx"]))


def merge_metric_state(
    module: L.LightningModule, ranks: list[dict[str, Any]], rank: int, world_size: int
) -> dict[str, Any]:
    """Return the state of one process, merged from the states of another number of processes.

    The first process takes the sums of all, the others start at zero, so that the metrics of the epoch cover all
    examples.

    Args:
        module: module with the metrics.
        ranks: state of each earlier process.
        rank: rank of the process whose state is returned.
        world_size: current number of processes.
    """
    return {
        "results": {
            key: _merge_results(entries, rank, world_size) for key, entries in _by_name(ranks, "results").items()
        },
        "metrics": {
            name: _merge_metrics(metric, saved)
            for name, saved in _by_name(ranks, "metrics").items()
            if rank == 0 and (metric := dict(_metrics(module)).get(name)) is not None
        },
        "callback_metrics": ranks[0]["callback_metrics"],
    }


def _by_name(ranks: list[dict[str, Any]], part: str) -> dict[str, list[Any]]:
    """Return the entries of all processes under each name of a part of the state."""
    names = {name: None for saved in ranks for name in saved[part]}
    return {name: [saved[part][name] for saved in ranks if name in saved[part]] for name in names}


def _merge_results(entries: list[dict[str, Any]], rank: int, world_size: int) -> dict[str, Any]:
    """Return one logged value, merged from the values of several processes."""
    if "states" not in entries[0]:
        return entries[0]
    reduction = entries[0]["reduce_fx"]
    columns = {key: torch.stack([entry["states"][key] for entry in entries]) for key in entries[0]["states"]}
    states = {key: _reduced(values, reduction) for key, values in columns.items()}
    if rank and reduction not in ("max", "min"):
        states = {key: torch.zeros_like(value) for key, value in states.items()}
    # The sum is spread over the processes.
    return {**entries[0], "states": states, "sync_dist": world_size > 1}


def _reduced(values: Tensor, reduction: str) -> Tensor:
    """Return the maximum, minimum or sum over processes; a mean is accumulated as sums."""
    return getattr(values, f"a{reduction}")(dim=0) if reduction in ("max", "min") else values.sum(dim=0)


def _merge_metrics(metric: Metric, saved: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one state of a torchmetrics metric, merged from the states of several processes."""
    columns = {key: [entry["states"][key] for entry in saved] for key in metric._defaults}
    states = {key: _merge_values(metric._reductions[key], values) for key, values in columns.items()}
    return {"states": states, "updates": sum(entry["updates"] for entry in saved)}


def _merge_values(reduction: Any, values: list[Any]) -> Any:
    """Return one tensor or list of a metric's state, merged over processes by the metric's own reduction."""
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    stacked = torch.stack(values)
    return stacked.sum(dim=0) if reduction is None else reduction(stacked)


def keep_epoch_metrics(trainer: L.Trainer) -> None:
    """Tell Lightning that the next batch is not the first of the epoch, before which it resets the metrics."""
    trainer._logger_connector._first_loop_iter = False


def _metrics(module: L.LightningModule) -> list[tuple[str, Metric]]:
    return [(name, part) for name, part in module.named_modules() if isinstance(part, Metric)]


def _metric_sums(module: L.LightningModule) -> dict[str, Any]:
    return {
        name: {
            "states": {key: _copy_to("cpu", getattr(metric, key)) for key in metric._defaults},
            "updates": metric._update_count,
        }
        for name, metric in _metrics(module)
        if metric._update_count
    }


def _logged(metric: Any) -> dict[str, Any]:
    meta = metric.meta
    entry = {name: getattr(meta, name) for name in LOGGED}
    entry |= {"fx": meta.fx, "name": meta.name, "reduce_fx": meta.reduce_fx.__name__}
    entry |= {"sync_dist": bool(meta.sync.should), "rank_zero_only": bool(meta.sync.rank_zero_only)}
    if metric.is_tensor:
        entry["states"] = {key: _copy_to("cpu", getattr(metric, key)) for key in metric._defaults}
    return entry


def _log_again(trainer: L.Trainer, module: L.LightningModule, entry: dict[str, Any]) -> None:
    """Register a value as if this process had logged it, then set its accumulated state."""
    if entry["reduce_fx"] not in REDUCTIONS:
        raise UsageError(
            f"the checkpoint reduces {entry['name']!r} by {entry['reduce_fx']!r}, which is not one of "
            f"{', '.join(REDUCTIONS)}; it is damaged, resume from another checkpoint"
        )
    value: Any = torch.zeros((), device=module.device)
    if "states" not in entry:
        value = dict(_metrics(module)).get(entry["metric_attribute"])
        if value is None:
            return
    results = trainer.fit_loop.epoch_loop._results
    results.log(
        entry["fx"],
        entry["name"],
        value,
        **{name: entry[name] for name in (*LOGGED, "sync_dist", "rank_zero_only")},
        reduce_fx=getattr(torch, entry["reduce_fx"]),
        sync_dist_fn=trainer.strategy.reduce,
        batch_size=1,
    )
    metric = results[f"{entry['fx']}.{entry['name']}"]
    for key, state in entry.get("states", {}).items():
        setattr(metric, key, _copy_to(module.device, state))
    metric._computed = None


def _copy_to(device: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_copy_to(device, item) for item in value]
    return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: _copy_to("cpu", value) for name, value in metrics.items()}
