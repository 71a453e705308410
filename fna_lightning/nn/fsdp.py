"""Sharding the parameters of a module over processes with PyTorch's ``fully_shard`` (FSDP2)."""

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import FSDPModule, FullyShardedDataParallel, fully_shard, register_fsdp_forward_method
from torch.distributed.tensor import DTensor

# Methods of a task besides ``forward`` that run its model; Lightning and callbacks call them.
FORWARD_METHODS = ("training_step", "validation_step", "test_step", "predict_step", "probe")


def shard(module: nn.Module, mesh: DeviceMesh) -> None:
    """Shard the parameters of a task: one FSDP unit per layer, and one for all other parameters."""
    for parameter in module.parameters():
        # Shards consist of rows, so column-major parameters (see FeedForward) must be row-major here.
        parameter.data = parameter.data.contiguous()
    for part in module.modules():
        for layer in part if isinstance(part, nn.ModuleList) else ():
            fully_shard(layer, mesh=mesh)
    fully_shard(module, mesh=mesh)
    for name in FORWARD_METHODS:
        register_fsdp_forward_method(module, name)


def sharded(module: nn.Module) -> bool:
    """Return whether the parameters of a module are sharded, so that all processes must run it together."""
    return any(isinstance(part, FSDPModule | FullyShardedDataParallel) for part in module.modules())


def local_part(parameter: Tensor) -> Tensor:
    """Return the local shard of a parameter, or the whole parameter if it is not sharded."""
    return parameter.to_local() if isinstance(parameter, DTensor) else parameter


def nonfinite_parameter(module: nn.Module) -> str | None:
    """Return the name of the first parameter with infinite or NaN values in this process, or None."""
    for name, parameter in module.named_parameters():
        if not local_part(parameter).isfinite().all():
            return name
    return None
