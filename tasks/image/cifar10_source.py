"""CIFAR-10 on the hub, in a folder with the hub's layout, or as downloaded by torchvision."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.hub import HubDataset, check_labels, find_dataset
from fna_lightning.tasks.image.cache import Pixels
from fna_lightning.tasks.image.codec import decode_exact
from fna_lightning.tasks.image.hub_source import encoded_image

HUB_NAME = "uoft-cs/cifar10"
LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIZE = 32
TORCHVISION_FOLDER = "cifar-10-batches-py"

LabelledImages = tuple[Pixels, list[int]]


class Cifar10Source(HubDataset):
    """Images loaded with the `datasets` library, in the columns "img" and "label"."""

    @property
    def layout(self) -> str:
        return (
            "the splits train and test (train-*.parquet and test-*.parquet), each with the columns img (PNG, "
            f"{SIZE} x {SIZE}) and label (0 to {len(LABELS) - 1}), or torchvision's folder {TORCHVISION_FOLDER}"
        )

    def read(self) -> dict[str, LabelledImages]:
        """Return the splits "train" and "test"; an image is decoded when its pixels are requested."""
        with self.open() as splits:
            return {split: self.read_split(splits, split) for split in ("train", "test")}

    def read_split(self, splits: Mapping[str, Any], split: str) -> LabelledImages:
        """Return the images and labels of one split of a loaded data set."""
        import datasets

        examples = self.checked_split(splits, split, ("img", "label"))
        labels = list(examples["label"])
        check_labels(labels, len(LABELS), f"split {split!r} of {self.path}")
        # the library returns the encoded files, which ``decode_exact`` checks and decodes
        files = list(examples.cast_column("img", datasets.Image(decode=False))["img"])

        def pixels(index: int) -> NDArray[np.uint8]:
            name = f"image {index} of split {split!r} of {self.path}"
            return decode_exact(encoded_image(files[index], name), name, 3, SIZE)

        return pixels, labels


class TorchvisionCifar10(Cifar10Source):
    """Torchvision's folder. Its files are pickles, so they are only opened if their digests are the published ones."""

    def read(self) -> dict[str, LabelledImages]:
        from torchvision.datasets import CIFAR10

        try:
            parts = {name: CIFAR10(self.path, train=name == "train") for name in ("train", "test")}
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"{Path(self.path) / TORCHVISION_FOLDER} is incomplete or its files differ from the published ones; "
                "download them again"
            ) from error
        for part in parts.values():
            check_labels(part.targets, len(LABELS), self.path)
        return {name: (part.data.transpose(0, 3, 1, 2).__getitem__, part.targets) for name, part in parts.items()}


def cifar10_source(path: str | None) -> Cifar10Source:
    """Return the data set at ``path``, a parameter of ``Cifar10Data``."""
    location = find_dataset(path, "cifar10", HUB_NAME)
    folder = Path(location)
    if folder.name == TORCHVISION_FOLDER:
        folder = folder.parent
    if (folder / TORCHVISION_FOLDER).is_dir():
        return TorchvisionCifar10(str(folder))
    return Cifar10Source(location)
