"""The batch and the learning rate of an optimizer step."""

from typing import Any

import lightning as L

from fna_lightning.training.samplers import TokenBatchSampler


def step_size(trainer: L.Trainer) -> dict[str, Any]:
    """Return the batch size per process and its unit, the effective batch size and the learning rates of a step."""
    batch_size, unit = batch_of(trainer)
    count = trainer.world_size * trainer.accumulate_grad_batches
    return {
        "batch_size": batch_size,
        "unit": unit,
        "processes": trainer.world_size,
        "accumulated": trainer.accumulate_grad_batches,
        "effective_batch": None if batch_size is None else batch_size * count,
        # a schedule with a warmup begins at a fraction of the rate that is configured
        "learning_rate": [
            group.get("initial_lr", group["lr"]) for optimizer in trainer.optimizers for group in optimizer.param_groups
        ],
    }


def batch_of(trainer: L.Trainer) -> tuple[int | None, str]:
    """Return the batch size of one process in training, and its unit: "examples" or "tokens".

    The size is None if neither the loader nor the data module has one, as for an IterableDataset that makes batches.
    """
    loader = getattr(trainer, "train_dataloader", None)
    sampler = getattr(loader, "batch_sampler", None)
    unit = "tokens" if isinstance(sampler, TokenBatchSampler) else "examples"
    for owner in (sampler, loader, getattr(trainer, "datamodule", None)):
        size = getattr(owner, "batch_size", None)
        if isinstance(size, int):
            return size, unit
    return None, "examples"


def describe_step(steps: dict[str, Any]) -> str:
    """Return ``step_size`` as one line of text."""
    share = f"{steps['processes']} process{'es' * (steps['processes'] > 1)} x {steps['accumulated']} accumulated"
    rates = ", ".join(f"{rate:g}" for rate in steps["learning_rate"])
    if steps["effective_batch"] is None:
        return f"effective batch = batch of the data loader x {share}, learning rate {rates}"
    # a batch of tokens ends where the next sequence does not fit
    size = f"up to {steps['effective_batch']} tokens" if steps["unit"] == "tokens" else str(steps["effective_batch"])
    return f"effective batch {size} = {steps['batch_size']} x {share}, learning rate {rates}"
