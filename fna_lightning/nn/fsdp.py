"""Sharding the parameters of a module over processes with PyTorch's ``fully_shard`` (FSDP2)."""

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

# methods of a task that run its model beside ``forward``; Lightning and callbacks call them
STEPS = ("training_step", "validation_step", "test_step", "predict_step", "probe")


def shard(module: nn.Module, mesh: DeviceMesh) -> None:
    """Cut the parameters of a task into shards: those of each layer together, and what is left together."""
    for parameter in module.parameters():
        # shards are cut from rows; what is stored by columns for speed cannot be
        parameter.data = parameter.data.contiguous()
    for part in module.modules():
        for layer in part if isinstance(part, nn.ModuleList) else ():
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for name in STEPS:
        register_fsdp_forward_method(module, name)


def sharded(module: nn.Module) -> bool:
    """Whether no process holds the parameters of this module whole, so that only all of them together can run it."""
    return any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in module.modules())


def local_part(parameter: Tensor) -> Tensor:
    """Return what this process holds of a parameter: its shard, or all of it."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter
