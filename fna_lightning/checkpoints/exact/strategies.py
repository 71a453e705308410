"""Private settings of Lightning's strategies."""

from lightning.pytorch.strategies import ModelParallelStrategy

from fna_lightning.checkpoints.exact.private_api import require_attribute


def set_data_parallel_size(strategy: ModelParallelStrategy, size: int) -> None:
    """Set the number of shards of a strategy that was built before the number of processes was known.

    Lightning's default is one shard per node, with tensor parallelism inside a node.
    """
    require_attribute(strategy, "_data_parallel_size", type(strategy).__name__)
    strategy._data_parallel_size = size
