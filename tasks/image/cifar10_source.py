"""CIFAR-10 as people have it: on the hub, in a folder of the hub's layout, or as torchvision downloads it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fna_lightning.errors import UsageError
from fna_lightning.tasks.image.cache import Pixels
from fna_lightning.tasks.image.codec import decode
from fna_lightning.tasks.text.source import TextSource

HUB_NAME = "uoft-cs/cifar10"
LABELS = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
SIZE = 32
TORCHVISION_FOLDER = "cifar-10-batches-py"

LabelledImages = tuple[Pixels, list[int]]


class HubImages(TextSource):
    """Images through the `datasets` library."""

    def read_images(self) -> dict[str, LabelledImages]:
        """Return the splits "train" and "test"; a picture is decoded when it is asked for."""
        return self.load(self._images)

    def _images(self, found: Mapping[str, Any], split: str) -> LabelledImages:
        import datasets

        if split not in found:
            raise UsageError(f"{self.path} has the splits {', '.join(found)} and no {split!r}; {self._expected()}")
        part = found[split]
        if missing := {"img", "label"} - set(part.column_names):
            raise UsageError(
                f"split {split!r} of {self.path} has the columns {', '.join(part.column_names)} and no "
                f"{' and no '.join(sorted(missing))}; {self._expected()}"
            )
        labels = check_labels(list(part["label"]), f"split {split!r} of {self.path}")
        # the bytes of the files: decoding is done here, once and with Pillow
        files = list(part.cast_column("img", datasets.Image(decode=False))["img"])

        def pixels(number: int) -> Any:
            name = f"image {number} of split {split!r} of {self.path}"
            file = files[number]
            if file is None:
                raise UsageError(f"{name} is null and no picture; remove its row, or fill in the picture")
            if file["bytes"] is not None:
                return decode(file["bytes"], name, 3, SIZE)
            try:
                content = Path(file["path"]).read_bytes()
            except OSError as error:
                raise UsageError(f"{file['path']}, {name}, cannot be read ({error.strerror}); restore it") from error
            return decode(content, file["path"], 3, SIZE)

        return pixels, labels

    def _expected(self) -> str:
        return (
            "expected are the splits train and test (train-*.parquet and test-*.parquet), each with the columns "
            f"img (a PNG of {SIZE} x {SIZE}) and label (0 to {self.num_classes - 1}), or torchvision's folder "
            f"{TORCHVISION_FOLDER}"
        )


class TorchvisionImages(HubImages):
    """Torchvision's folder: pickles, so they are opened only if they are byte for byte the published ones."""

    def read_images(self) -> dict[str, LabelledImages]:
        from torchvision.datasets import CIFAR10

        try:
            parts = {name: CIFAR10(self.path, train=name == "train") for name in ("train", "test")}
        except (OSError, RuntimeError) as error:
            raise UsageError(
                f"{Path(self.path) / TORCHVISION_FOLDER} is not whole: its files differ from the published ones, or "
                "some are missing; download them again"
            ) from error
        return {
            name: (part.data.transpose(0, 3, 1, 2).__getitem__, check_labels(part.targets, self.path))
            for name, part in parts.items()
        }


def check_labels(labels: list[int], where: str) -> list[int]:
    """Return the labels, if they are those of ten classes."""
    if strange := set(labels) - set(range(len(LABELS))):
        label = "null" if None in strange else min(strange) if min(strange) < 0 else max(strange)
        raise UsageError(f"{where} has the label {label}; expected are {len(LABELS)} classes, 0 to {len(LABELS) - 1}")
    return labels


def cifar10_source(path: str | None) -> HubImages:
    """Return the source at ``path``; see ``Cifar10Data``."""
    found = HubImages.find(path, "cifar10", HUB_NAME, len(LABELS))
    assert isinstance(found, HubImages)
    folder = Path(found.path)
    if folder.name == TORCHVISION_FOLDER:
        folder = folder.parent
    if (folder / TORCHVISION_FOLDER).is_dir():
        return TorchvisionImages(str(folder), len(LABELS))
    return found
