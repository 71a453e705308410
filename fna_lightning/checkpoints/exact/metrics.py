"""What an epoch has measured so far, so that its means are those of the whole epoch although it was interrupted."""

from typing import Any

import lightning as L
import torch
from torch import Tensor
from torchmetrics import Metric

from fna_lightning.errors import UsageError

# how values of a step become one of an epoch; a checkpoint may name no other function of torch
REDUCTIONS = ("mean", "sum", "max", "min")
LOGGED = ("prog_bar", "logger", "on_step", "on_epoch", "add_dataloader_idx", "metric_attribute")


def metric_state(trainer: L.Trainer, module: L.LightningModule) -> dict[str, Any]:
    """Return the sums behind the metrics of the running training epoch, as plain values and tensors."""
    results = {
        key: _logged(metric) for key, metric in trainer.fit_loop.epoch_loop._results.items() if not metric.has_reset
    }
    return {"results": results, "metrics": _sums(module), "callback_metrics": _plain(trainer.callback_metrics)}


def set_metric_state(trainer: L.Trainer, module: L.LightningModule, state: dict[str, Any]) -> None:
    """Go on measuring where ``metric_state`` was taken."""
    for name, metric in _metrics(module):
        saved = state["metrics"].get(name)
        if saved is not None:
            for key, value in saved["states"].items():
                setattr(metric, key, _on(metric.device, value))
            metric._update_count = saved["updates"]
            metric._computed = None
    for entry in state["results"].values():
        _log_again(trainer, module, entry)
    trainer._logger_connector._callback_metrics.update(state["callback_metrics"])


def add_results(trainer: L.Trainer, entries: dict[str, Any]) -> None:
    """Add the sums of ``entries`` to values that this process has logged already."""
    results = trainer.fit_loop.epoch_loop._results
    for key, entry in entries.items():
        metric = results.get(key)
        for name, saved in entry.get("states", {}).items() if metric is not None else ():
            value = getattr(metric, name)
            both = torch.stack([value, saved.to(value)])
            setattr(metric, name, _reduced(both, entry["reduce_fx"]))


def merged(module: L.LightningModule, ranks: list[dict[str, Any]], rank: int, world_size: int) -> dict[str, Any]:
    """Return the state of process ``rank`` of ``world_size`` processes from those of another number of processes.

    The first process takes over the sums of all, the others begin at zero, so that the metrics of the epoch are
    those of all examples.
    """
    return {
        "results": {
            key: _joined_result(entries, rank, world_size) for key, entries in _by_name(ranks, "results").items()
        },
        "metrics": {
            name: _joined_metric(metric, saved)
            for name, saved in _by_name(ranks, "metrics").items()
            if rank == 0 and (metric := dict(_metrics(module)).get(name)) is not None
        },
        "callback_metrics": ranks[0]["callback_metrics"],
    }


def _by_name(ranks: list[dict[str, Any]], part: str) -> dict[str, list[Any]]:
    """Return what the processes saved under each name of a part."""
    names = {name: None for saved in ranks for name in saved[part]}
    return {name: [saved[part][name] for saved in ranks if name in saved[part]] for name in names}


def _joined_result(entries: list[dict[str, Any]], rank: int, world_size: int) -> dict[str, Any]:
    """Return one logged value for those of several processes."""
    if "states" not in entries[0]:
        return entries[0]
    reduction = entries[0]["reduce_fx"]
    columns = {key: torch.stack([entry["states"][key] for entry in entries]) for key in entries[0]["states"]}
    states = {key: _reduced(values, reduction) for key, values in columns.items()}
    if rank and reduction not in ("max", "min"):
        states = {key: torch.zeros_like(value) for key, value in states.items()}
    # only together the processes know the sum
    return {**entries[0], "states": states, "sync_dist": world_size > 1}


def _reduced(values: Tensor, reduction: str) -> Tensor:
    """Return one sum, maximum or minimum for those of several processes; of a mean, the sums are kept."""
    return getattr(values, f"a{reduction}")(dim=0) if reduction in ("max", "min") else values.sum(dim=0)


def _joined_metric(metric: Metric, saved: list[dict[str, Any]]) -> dict[str, Any]:
    """Return one state of a metric for those of several processes, joined as torchmetrics does."""
    columns = {key: [entry["states"][key] for entry in saved] for key in metric._defaults}
    states = {key: _joined(metric._reductions[key], values) for key, values in columns.items()}
    return {"states": states, "updates": sum(entry["updates"] for entry in saved)}


def _joined(reduction: Any, values: list[Any]) -> Any:
    """Return one state of a metric for those of several processes, as torchmetrics joins them."""
    if isinstance(values[0], list):
        return [item for value in values for item in value]
    stacked = torch.stack(values)
    return stacked.sum(dim=0) if reduction is None else reduction(stacked)


def keep_measuring(trainer: L.Trainer) -> None:
    """Tell Lightning that this is not the first batch of the epoch, before which it forgets what was measured."""
    trainer._logger_connector._first_loop_iter = False


def _metrics(module: L.LightningModule) -> list[tuple[str, Metric]]:
    return [(name, one) for name, one in module.named_modules() if isinstance(one, Metric)]


def _sums(module: L.LightningModule) -> dict[str, Any]:
    return {
        name: {
            "states": {key: _on("cpu", getattr(metric, key)) for key in metric._defaults},
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
        entry["states"] = {key: _on("cpu", getattr(metric, key)) for key in metric._defaults}
    return entry


def _log_again(trainer: L.Trainer, module: L.LightningModule, entry: dict[str, Any]) -> None:
    """Register a value as if it had been logged in this process, then give it the sums it had."""
    if entry["reduce_fx"] not in REDUCTIONS:
        raise UsageError(
            f"the checkpoint reduces {entry['name']!r} by {entry['reduce_fx']!r}, which is not one of "
            f"{', '.join(REDUCTIONS)}; it is damaged, resume from another one"
        )
    found: Any = torch.zeros((), device=module.device)
    if "states" not in entry:
        found = dict(_metrics(module)).get(entry["metric_attribute"])
        if found is None:
            return
    results = trainer.fit_loop.epoch_loop._results
    results.log(
        entry["fx"],
        entry["name"],
        found,
        **{name: entry[name] for name in (*LOGGED, "sync_dist", "rank_zero_only")},
        reduce_fx=getattr(torch, entry["reduce_fx"]),
        sync_dist_fn=trainer.strategy.reduce,
        batch_size=1,
    )
    metric = results[f"{entry['fx']}.{entry['name']}"]
    for key, value in entry.get("states", {}).items():
        setattr(metric, key, _on(module.device, value))
    metric._computed = None


def _on(device: Any, value: Any) -> Any:
    if isinstance(value, list):
        return [_on(device, one) for one in value]
    return value.detach().to(device, copy=True) if isinstance(value, Tensor) else value


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    return {name: _on("cpu", value) for name, value in metrics.items()}
