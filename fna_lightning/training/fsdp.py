"""Parameters, gradients and optimiser states in shards, one for each process: PyTorch's ``fully_shard`` (FSDP2)."""

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

from fna_lightning.checkpoints.load import read_checkpoint
from fna_lightning.errors import UsageError

NAME = "fsdp2"
# whole tensors on the processor, in rank 0
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)


class FullySharded(ModelParallelStrategy):
    """``--trainer.strategy fsdp2``: every process holds a part of every parameter, and a checkpoint is one whole file.

    Tried with gloo on processors; written for GPUs, where nobody has tried it yet.
    """

    strategy_name = NAME

    def __init__(self, **kwargs: Any) -> None:
        # one file, through our CheckpointIO: whole on disk, and read without running anything
        super().__init__(tensor_parallel_size=1, save_distributed_checkpoint=False, **kwargs)

    def setup_environment(self) -> None:
        self._data_parallel_size = self.num_nodes * self.num_processes
        super().setup_environment()

    def load_checkpoint(
        self, checkpoint_path: str | os.PathLike[str], weights_only: bool | None = None
    ) -> dict[str, Any]:
        """Return what the checkpoint holds, with weights and optimisers already where they belong.

        Lightning's own would unpickle the file before anybody has looked at it.
        """
        checkpoint = read_checkpoint(Path(self.broadcast(checkpoint_path)))
        assert self.model is not None
        try:
            set_model_state_dict(self.model, checkpoint["state_dict"], options=WHOLE)
            for optimizer, state in zip(self.optimizers, checkpoint.get("optimizer_states", []), strict=False):
                names = self._names(optimizer)
                set_optimizer_state_dict(self.model, optimizer, _renamed(state, dict(enumerate(names))), options=WHOLE)
        except (KeyError, ValueError, TypeError, AttributeError) as error:
            raise UsageError(f"{checkpoint_path} does not fit this model: {type(error).__name__} {error}") from error
        return checkpoint

    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        """Return its whole state in rank 0, parameters by their numbers as a run of one process writes it."""
        found: Any = optimizer._optimizer if isinstance(optimizer, LightningOptimizer) else optimizer
        assert self.model is not None
        state = get_optimizer_state_dict(self.model, found, options=WHOLE)
        numbers = {name: number for number, name in enumerate(self._names(found))}
        return _renamed(state, numbers) if self.global_rank == 0 else {}

    def _names(self, optimizer: Optimizer) -> list[str]:
        """Return the names of the parameters of an optimiser in its order."""
        assert self.model is not None
        names = {id(parameter): name for name, parameter in self.model.named_parameters()}
        return [names[id(parameter)] for group in optimizer.param_groups for parameter in group["params"]]


def _renamed(state: dict[str, Any], names: dict[Any, Any]) -> dict[str, Any]:
    """Return the state of an optimiser with other names for its parameters."""
    groups = [{**group, "params": [names[one] for one in group["params"]]} for group in state["param_groups"]]
    return {"state": {names[one]: value for one, value in state["state"].items()}, "param_groups": groups}


if NAME not in StrategyRegistry:
    StrategyRegistry.register(NAME, FullySharded, description="parameters in shards, by PyTorch's fully_shard")
