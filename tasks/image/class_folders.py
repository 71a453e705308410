"""The classes and the files of a folder with one subfolder per class."""

from dataclasses import dataclass
from pathlib import Path

from fna_lightning.errors import UsageError
from fna_lightning.tasks.data.splits import SPLIT_NAMES
from fna_lightning.tasks.image.codec import ENDINGS
from fna_lightning.tasks.image.files import check_link, is_image_name, list_images, visible


@dataclass(frozen=True)
class ClassFolders:
    """Image files with their labels.

    Attributes:
        class_names: names of the labels 0, 1, ..., sorted.
        files: the files of each split that has a folder; only "train" if there are no folders of splits.
        labels: their labels.
    """

    class_names: list[str]
    files: dict[str, list[Path]]
    labels: dict[str, list[int]]


def read_class_folders(root: Path) -> ClassFolders:
    """List the images of ``root/CLASS/`` or of ``root/train/CLASS/``, ``root/val/CLASS/`` and ``root/test/CLASS/``."""
    splits = {name: _classes(folder, root) for name, folder in _split_folders(root).items()}
    class_names = sorted(splits["train"])
    if len(class_names) < 2:
        raise UsageError(_one_class(root, class_names[0]))
    for name, classes in splits.items():
        for class_name in classes:
            if class_name not in class_names:
                raise UsageError(
                    f"class {class_name!r} is in the {name} split of {root} but not in {root / 'train'}; add training "
                    "images of it or remove its folder"
                )
    files = {name: [file for paths in classes.values() for file in paths] for name, classes in splits.items()}
    labels = {
        name: [class_names.index(class_name) for class_name, paths in classes.items() for _ in paths]
        for name, classes in splits.items()
    }
    return ClassFolders(class_names, files, labels)


def _split_folders(root: Path) -> dict[str, Path]:
    """Return the folder of each split; only "train", which is ``root`` itself, if there are no folders of splits."""
    folders = _subfolders(root, root)
    train = root / "train"
    # "train" can also be a class: its folder then contains images and no folders
    if train not in folders or not _subfolders(train, root):
        return {"train": root}
    splits = {"train": train}
    for folder in folders:
        name = "val" if folder.name in SPLIT_NAMES["val"] else folder.name
        if name not in ("train", "val", "test") or (name != "train" and name in splits):
            raise UsageError(f"{folder} is next to {train} but is neither the folder val nor test; move it elsewhere")
        splits[name] = folder
    return splits


def _classes(folder: Path, root: Path) -> dict[str, list[Path]]:
    """Return the image files of each class in the folder of a split."""
    for path in visible(folder):
        if is_image_name(path):
            raise UsageError(
                f"{path} is not in a class folder; put the images of each class into a folder with the name of the "
                f"class, for example {folder / 'cat' / path.name}"
            )
    classes = {path.name: list_images(path, root) for path in _subfolders(folder, root)}
    if not any(classes.values()):
        raise UsageError(
            f"{folder} contains no image; it must have a folder for each class with files that end in "
            f"{', '.join(ENDINGS)}, for example {folder / 'cat' / '1.jpg'}"
        )
    for class_name, files in classes.items():
        if not files:
            raise UsageError(f"the class folder {folder / class_name} contains no image; add images to it or remove it")
    return classes


def _subfolders(folder: Path, root: Path) -> list[Path]:
    subfolders = [path for path in visible(folder) if path.is_dir()]
    for path in subfolders:
        if path.is_symlink():
            check_link(path, root)
    return subfolders


def _one_class(root: Path, class_name: str) -> str:
    inner = root / class_name
    hint = f"; did you mean {inner}?" if inner.is_dir() and any(path.is_dir() for path in visible(inner)) else ""
    return f"{root} has only one class, {class_name!r}; a classifier needs at least two class folders{hint}"
