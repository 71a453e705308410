"""What batch samplers share: a new random order each epoch, of which every process takes its part."""


class EpochBatches:
    """A batch sampler of one process of several; its order depends on the seed and the epoch only.

    Args:
        shuffle: whether examples are in random order, a new one each epoch.
        seed: of the random order, the same in every process.
        rank: which share this process takes.
        world_size: number of processes.
    """

    def __init__(self, *, shuffle: bool, seed: int, rank: int, world_size: int) -> None:
        self.shuffle = shuffle
        self.seed = seed
        self.rank = rank
        self.world_size = world_size
        self.epoch = 0
        # Lightning announces the epoch to `batch_sampler.sampler`
        self.sampler = self

    def set_epoch(self, epoch: int) -> None:
        """Choose the random order of this epoch."""
        self.epoch = epoch
