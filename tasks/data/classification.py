"""Base class of data modules for classification."""

from abc import abstractmethod

from fna_lightning.tasks.data.split_data import Split, SplitData


class ClassificationData(SplitData[Split]):
    """A data set of labelled examples.

    Args:
        batch_size: examples per batch and process.
        num_workers: number of worker processes that load batches; 0 loads them in the training process.
    """

    def __init__(self, *, batch_size: int, num_workers: int = 0) -> None:
        super().__init__(num_workers=num_workers)
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.batch_size = batch_size

    @property
    @abstractmethod
    def class_names(self) -> list[str]:
        """Names of the labels 0, 1, ..."""

    @property
    def num_classes(self) -> int:
        return len(self.class_names)
