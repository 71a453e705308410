"""Labelled images on the hub or in a folder with the hub's layout, with any column names."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.hub import HubDataset
from fna_lightning.tasks.data.splits import SPLIT_NAMES
from fna_lightning.tasks.image.codec import decode


@dataclass(frozen=True)
class HubImageTable:
    """Encoded images of all splits, one split after another.

    Attributes:
        path: a folder, or ``hub:`` and a name on the hub, for error messages.
        images: a data set of one column, the encoded images as `datasets` stores them: bytes, or the path of a file.
        labels: their labels.
        class_names: names of the labels 0, 1, ...
        sizes: number of images in each split.
    """

    path: str
    images: Any
    labels: list[int]
    class_names: list[str]
    sizes: dict[str, int]

    def __len__(self) -> int:
        return len(self.labels)

    def pixels(self, row: int, channels: int, image_size: int) -> NDArray[np.uint8]:
        """Return the (C, S, S) pixels of the center square of an image, resized."""
        (file,) = self.images[row].values()
        name = self._name(row)
        return decode(encoded_image(file, name), name, channels, image_size)

    def _name(self, row: int) -> str:
        """Return what error messages call an image."""
        for split, size in self.sizes.items():
            if row < size:
                return f"image {row} of split {split!r} of {self.path}"
            row -= size
        raise IndexError(row)


@dataclass(frozen=True)
class HubImageSource(HubDataset):
    """A data set with a column of images and a column of labels.

    Args:
        path: a folder, or ``hub:`` and a name on the hub.
        image_column: column of the images.
        label_column: column of the labels.
    """

    image_column: str
    label_column: str

    @property
    def layout(self) -> str:
        return (
            f"the split train (train-*.parquet) with the columns {self.image_column} and {self.label_column}, and "
            "optionally the splits validation and test"
        )

    def read(self, splits: Mapping[str, Any]) -> HubImageTable:
        """Return the images of the splits "train", "val" and "test" of a loaded data set, as far as they exist."""
        import datasets

        if "train" not in splits:
            raise UsageError(f"{self.path} has the splits {', '.join(splits)} and no 'train'; expected {self.layout}")
        names = _split_names(splits)
        classes = self._classes(self._checked(splits["train"]))
        numbers = {value: number for number, value in enumerate(classes)}
        images, labels, sizes = [], [], {}
        for name, split in names.items():
            examples = self._checked(splits[split])
            images.append(self._images(examples))
            labels += [self._number(label, numbers, split) for label in examples[self.label_column]]
            sizes[name] = len(examples)
        return HubImageTable(self.path, datasets.concatenate_datasets(images), labels, list(classes.values()), sizes)

    def _checked(self, examples: Any) -> Any:
        """Return a split if it has both columns."""
        for option, column in (("image_column", self.image_column), ("label_column", self.label_column)):
            if column not in examples.column_names:
                raise UsageError(
                    f"{self.path} has the columns {', '.join(examples.column_names)} and no {column!r}; set "
                    f"--data.{option} to one of them"
                )
        return examples

    def _images(self, examples: Any) -> Any:
        """Return the images of a split as a data set of one column of encoded files."""
        import datasets

        try:
            # the files stay encoded, and ``decode`` checks and decodes them
            return examples.select_columns([self.image_column]).cast_column(
                self.image_column, datasets.Image(decode=False)
            )
        except (TypeError, ValueError, NotImplementedError) as error:
            raise UsageError(
                f"the column {self.image_column!r} of {self.path} holds no images; set --data.image_column to another "
                f"of its columns: {', '.join(examples.column_names)}"
            ) from error

    def _classes(self, train: Any) -> dict[Any, str]:
        """Return the name of the class of each value of the label column, in the order of the classes."""
        feature = train.features[self.label_column]
        if hasattr(feature, "names"):
            return dict(enumerate(feature.names))
        values = set(train[self.label_column])
        where = f"the column {self.label_column!r} of {self.path}"
        for value in values:
            if isinstance(value, bool) or not isinstance(value, int | str):
                raise UsageError(
                    f"{where} has the label {'null' if value is None else repr(value)}; labels must be integers or "
                    "strings, so remove such rows or set --data.label_column to another column"
                )
        if len(values) < 2:
            raise UsageError(f"{where} has only one class, {values.pop()!r}; a classifier needs at least two")
        return {value: str(value) for value in sorted(values)}

    def _number(self, label: Any, numbers: dict[Any, int], split: str) -> int:
        """Return the number of the class of a label."""
        if label in numbers:
            return numbers[label]
        raise UsageError(
            f"split {split!r} of {self.path} has the label {'null' if label is None else repr(label)}, which is none "
            "of the classes of its split 'train'; remove its rows"
        )


def encoded_image(file: dict[str, Any] | None, name: str) -> bytes:
    """Return the bytes of an image that `datasets` stores as bytes or as the path of a file."""
    if file is None:
        raise UsageError(f"{name} is null, not an image; remove its row or fill in the image")
    if file["bytes"] is not None:
        content: bytes = file["bytes"]
        return content
    try:
        return Path(file["path"]).read_bytes()
    except OSError as error:
        raise UsageError(f"{file['path']}, {name}, cannot be read ({error.strerror}); restore it") from error


def _split_names(splits: Mapping[str, Any]) -> dict[str, str]:
    """Return the name in the data set of each split that it has."""
    validation = next((name for name in SPLIT_NAMES["val"] if name in splits), None)
    names = {"train": "train", "val": validation, "test": "test" if "test" in splits else None}
    return {name: split for name, split in names.items() if split is not None}
