"""Labelled texts on the hub or in a folder with the hub's layout."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fna_lightning.tasks.data.hub import HubDataset, check_labels, check_texts

# texts and labels of each split
LabelledTexts = dict[str, tuple[list[str], list[int]]]


@dataclass(frozen=True)
class TextSource(HubDataset):
    """A data set with the columns "text" and "label".

    Args:
        path: a folder, or ``hub:`` and a name on the hub.
        num_classes: labels are 0 ... num_classes - 1.
    """

    num_classes: int

    @property
    def layout(self) -> str:
        return (
            "the splits train and test (train-*.parquet and test-*.parquet), each with the columns text and label "
            f"(0 to {self.num_classes - 1})"
        )

    def read(self) -> LabelledTexts:
        """Return the texts and labels of the splits "train" and "test"."""
        with self.open() as splits:
            return {split: self._read_split(splits, split) for split in ("train", "test")}

    def _read_split(self, splits: Mapping[str, Any], split: str) -> tuple[list[str], list[int]]:
        examples = self.checked_split(splits, split, ("text", "label"))
        texts, labels = list(examples["text"]), list(examples["label"])
        check_texts(texts, f"column 'text' of split {split!r} of {self.path}")
        check_labels(labels, self.num_classes, f"split {split!r} of {self.path}")
        return texts, labels
