"""Example of a data module: ``vocab_size`` and ``num_classes`` are passed to tasks that have these parameters."""

import lightning as L
import torch
from torch.utils.data import DataLoader, TensorDataset


class RepeatData(L.LightningDataModule):
    """Sequences of digits, labeled by whether the first digit occurs again.

    Args:
        train_size: number of training sequences.
        eval_size: number of validation sequences and of test sequences.
        length: number of digits per sequence.
        batch_size: number of sequences per batch.
    """

    vocab_size = 10
    num_classes = 2

    def __init__(self, train_size: int = 2048, eval_size: int = 512, length: int = 7, batch_size: int = 64) -> None:
        super().__init__()
        self.sizes = {"train": train_size, "val": eval_size, "test": eval_size}
        self.length = length
        self.batch_size = batch_size

    def train_dataloader(self) -> DataLoader:
        return self._loader("train")

    def val_dataloader(self) -> DataLoader:
        return self._loader("val")

    def test_dataloader(self) -> DataLoader:
        return self._loader("test")

    def _loader(self, split: str) -> DataLoader:
        generator = torch.Generator().manual_seed(list(self.sizes).index(split))
        rows = torch.randint(self.vocab_size, (self.sizes[split], self.length), generator=generator)
        labels = (rows[:, 1:] == rows[:, :1]).any(dim=1).long()
        return DataLoader(TensorDataset(rows, labels), self.batch_size, shuffle=split == "train")
