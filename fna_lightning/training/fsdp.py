"""Strategy that shards parameters, gradients and optimizer states over processes: PyTorch's ``fully_shard`` (FSDP2)."""

import os
from pathlib import Path
from typing import Any

from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import ModelParallelStrategy, StrategyRegistry
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.optim import Optimizer

from fna_lightning.checkpoints.exact.strategies import set_data_parallel_size
from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.errors import UsageError

NAME = "fsdp2"
# full tensors on the CPU of rank 0
FULL = StateDictOptions(full_state_dict=True, cpu_offload=True)


class FullySharded(ModelParallelStrategy):
    """``--trainer.strategy fsdp2``: every process holds a shard of every parameter; a checkpoint is one file.

    Tested with gloo on CPUs; not yet tested on GPUs.
    """

    strategy_name = NAME

    def __init__(self, **kwargs: Any) -> None:
        # One file through AtomicCheckpointIO: it is written atomically, and loading it executes no code.
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False, **kwargs)

    def setup_environment(self) -> None:
        set_data_parallel_size(self, self.num_nodes * self.num_processes)
        super().setup_environment()

    def load_checkpoint(
        self, checkpoint_path: str | os.PathLike[str], weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Load weights and optimizer states into their shards and return the checkpoint.

        Lightning's own method unpickles the file before it is checked.
        """
        checkpoint = read_checkpoint(Path(self.broadcast(checkpoint_path)))
        assert self.model is not None
        try:
            set_model_state_dict(self.model, checkpoint["state_dict"], options=FULL)
            for optimizer, state in zip(self.optimizers, checkpoint.get("optimizer_states", []), strict=False):
                names = self._names(optimizer)
                set_optimizer_state_dict(self.model, optimizer, _renamed(state, dict(enumerate(names))), options=FULL)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{checkpoint_path} does not fit this model: {type(error).__name__} {error}") from error
        return checkpoint

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return the full state in rank 0, with parameters numbered as in a run of one process."""
        plain: Optimizer = optimizer.optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        assert self.model is not None
        state = get_optimizer_state_dict(self.model, plain, options=FULL)
        numbers = {name: number for number, name in enumerate(self._names(plain))}
        return _renamed(state, numbers) if self.global_rank == 0 else {}

    def _names(self, optimizer: Optimizer) -> list[str]:
        """Return the names of the parameters of an optimizer in its order."""
        assert self.model is not None
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def _renamed(state: dict[str, Any], names: dict[Any, Any]) -> dict[str, Any]:
    """Return the state of an optimizer with its parameters renamed."""
    groups = [{**group, "params": [names[name] for name in group["params"]]} for group in state["param_groups"]]
    return {"state": {names[name]: value for name, value in state["state"].items()}, "param_groups": groups}


if NAME not in StrategyRegistry:
    StrategyRegistry.register(NAME, FullySharded, description="shards parameters with PyTorch's fully_shard")
