"""ImageFolder: class folders of any images, splits, the cache, and one sentence for each mistake."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fna_lightning.errors import UsageError
from fna_lightning.tasks import ImageFolder
from fna_lightning.tasks.image import codec

from helpers.photo_folder import SHAPES, photo_folder

ENDINGS = ".jpg, .jpeg, .png, .webp, .bmp, .gif"


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def photos(tmp_path) -> Path:
    """``photos`` in the working directory."""
    photo_folder(tmp_path / "photos")
    return Path("photos")


def prepared(path: object, **settings: object) -> ImageFolder:
    data = ImageFolder(path=str(path), **settings)
    data.prepare_data()
    return data


def message(path: object, **settings: object) -> str:
    """Return the error message of a folder."""
    with pytest.raises(UsageError) as caught:
        prepared(path, **settings)
    return str(caught.value)


def labels_of(data: ImageFolder, split: str) -> list[int]:
    images = data.split(split)
    return images.labels[images.rows].tolist()


def save(folder: Path, name: str, color: object = "red", mode: str = "RGB") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    Image.new(mode, (12, 9), color).save(folder / name)
    return folder / name


def test_images_of_two_sizes_become_one_array(photos) -> None:
    data = prepared(photos, image_size=32)
    assert data.class_names == list(SHAPES)
    assert (data.num_classes, data.channels, data.image_size) == (3, 3, 32)
    batch = next(iter(data.train_dataloader()))
    assert batch.images.shape == (24, 3, 32, 32)
    expected = Image.open(photos / "circle" / "1.jpg").crop((10, 0, 70, 60)).resize((32, 32), Image.Resampling.BICUBIC)
    row = data.files.index(photos / "circle" / "1.jpg")
    pixels = data.split("train").pixels[row].transpose(1, 2, 0)
    assert np.abs(pixels.astype(int) - np.asarray(expected).astype(int)).max() <= 2


def test_held_out_splits_are_stratified_disjoint_and_depend_on_the_seed(photos) -> None:
    data = prepared(photos, held_out=0.2)
    assert [labels_of(data, name) for name in ("val", "test")] == [[0, 0, 1, 1, 2, 2]] * 2
    rows = [set(data.rows[name].tolist()) for name in ("train", "val", "test")]
    assert set.union(*rows) == set(range(30))
    assert sum(map(len, rows)) == 30
    same, other = prepared(photos, held_out=0.2), prepared(photos, held_out=0.2, split_seed=1)
    assert same.rows["val"].tolist() == data.rows["val"].tolist() != other.rows["val"].tolist()


def test_a_small_class_has_one_image_in_each_split(photos) -> None:
    for number in range(3):
        save(photos / "line", f"{number}.png")
    data = prepared(photos)
    assert [labels_of(data, name).count(data.class_names.index("line")) for name in ("train", "val", "test")] == [1] * 3


def test_folders_of_splits(tmp_path) -> None:
    for split, count in (("train", 6), ("valid", 2), ("test", 3)):
        photo_folder(tmp_path / "photos" / split, count)
    data = prepared("photos")
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [18, 6, 9]
    assert data.example_names()[:2] == ["test/circle/0.jpg", "test/circle/1.jpg"]


def test_a_split_without_a_folder_is_held_out_of_the_training_images(tmp_path) -> None:
    photo_folder(tmp_path / "photos" / "train", 10)
    photo_folder(tmp_path / "photos" / "test", 3)
    data = prepared("photos")
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [27, 3, 9]


def test_train_can_be_a_class(photos) -> None:
    (photos / "circle").rename(photos / "train")
    assert ImageFolder(path=str(photos)).class_names == ["square", "train", "triangle"]


def test_images_are_read_once_and_again_when_a_file_changes(photos, monkeypatch) -> None:
    before = prepared(photos).split("train").pixels[0].copy()
    with monkeypatch.context() as patch:
        patch.setattr(codec, "decode", None)
        prepared(photos, held_out=0.3)
    Image.new("RGB", (80, 60), "white").save(photos / "circle" / "0.jpg")
    assert not np.array_equal(prepared(photos).split("train").pixels[0], before)


def test_junk_of_operating_systems_is_skipped(photos) -> None:
    for name in (".DS_Store", "Thumbs.db", "desktop.ini", "._0.jpg"):
        (photos / "circle" / name).write_bytes(b"x")
    (photos / "__MACOSX" / "circle").mkdir(parents=True)
    (photos / "README.md").write_text("shapes")
    assert len(ImageFolder(path=str(photos)).files) == 30


def test_images_in_subfolders_of_a_class_and_links_inside_the_folder(photos) -> None:
    save(photos / "circle" / "more", "a.png")
    (photos / "circle" / "link.jpg").symlink_to(Path("..") / "circle" / "0.jpg")
    assert len(ImageFolder(path=str(photos)).files) == 32


def test_path_in_the_home_folder(photos, monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert len(ImageFolder(path="~/photos").files) == 30


def test_a_missing_path_names_the_option() -> None:
    with pytest.raises(UsageError) as caught:
        ImageFolder()
    assert (
        str(caught.value) == "--data.path is not set; it must name a folder of images, for example --data.path photos/"
    )


def test_a_missing_folder_names_similar_folders(photos, tmp_path) -> None:
    assert message("phtos") == "folder not found: --data.path phtos; did you mean photos?"
    assert message("phtos/train") == "folder not found: --data.path phtos/train; did you mean photos?"
    assert message("uoft-cs/cifar10") == f"folder not found: --data.path uoft-cs/cifar10 in {tmp_path}"
    assert message("/nowhere/at/all") == "folder not found: --data.path /nowhere/at/all"


def test_a_file_instead_of_a_folder(photos) -> None:
    file = photos / "circle" / "0.jpg"
    assert message(file) == f"--data.path {file} is a file; give the folder that contains it"
    Path("photos.zip").write_bytes(b"")
    assert message("photos.zip") == "--data.path photos.zip is a file; unpack it and give the folder"


def test_no_images(tmp_path) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    assert message("photos") == (
        f"photos contains no image; it must have a folder for each class with files that end in {ENDINGS}, for example "
        "photos/cat/1.jpg"
    )


def test_one_class_only(tmp_path) -> None:
    save(Path("photos", "cat"), "1.png")
    assert message("photos") == "photos has only one class, 'cat'; a classifier needs at least two class folders"
    photo_folder(tmp_path / "outer" / "photos")
    assert message("outer") == (
        "outer has only one class, 'photos'; a classifier needs at least two class folders; did you mean outer/photos?"
    )


def test_images_without_class_folders() -> None:
    save(Path("photos"), "1.png")
    assert message("photos") == (
        "photos/1.png is not in a class folder; put the images of each class into a folder with the name of the class, "
        "for example photos/cat/1.png"
    )


def test_empty_class_folder(photos) -> None:
    (photos / "cat").mkdir()
    assert message(photos) == "the class folder photos/cat contains no image; add images to it or remove it"


@pytest.mark.parametrize(("folder", "split"), [("val", "val"), ("validation", "val"), ("test", "test")])
def test_a_class_that_train_lacks(tmp_path, folder, split) -> None:
    photo_folder(tmp_path / "photos" / "train")
    photo_folder(tmp_path / "photos" / folder)
    save(Path("photos", folder, "fox"), "1.png")
    assert message("photos") == (
        f"class 'fox' is in the {split} split of photos but not in photos/train; add training images of it or remove "
        "its folder"
    )


def test_an_unknown_folder_next_to_train(tmp_path) -> None:
    photo_folder(tmp_path / "photos" / "train")
    photo_folder(tmp_path / "photos" / "tset")
    assert message("photos") == (
        "photos/tset is next to photos/train but is neither the folder val nor test; move it elsewhere"
    )


def test_too_few_images_to_hold_out(photos) -> None:
    for number in range(2):
        save(photos / "cat", f"{number}.png")
    assert message(photos) == (
        "class 'cat' has 2 training images, too few to hold out 1 for val and test each; add images to the class or "
        "remove it"
    )


def test_a_broken_image_is_named(photos) -> None:
    file = photos / "circle" / "3.jpg"
    file.write_bytes(file.read_bytes()[:300])
    assert message(photos).startswith(f"{file} cannot be decoded as an image (")
    file.write_bytes(b"<html>not found</html>")
    assert message(photos) == (
        f"{file} cannot be decoded as an image (cannot identify image file); replace or remove it"
    )
    # a failed build leaves no cache behind
    file.unlink()
    assert len(prepared(photos).split("train")) == 23


def test_another_file_among_the_images(photos) -> None:
    (photos / "circle" / "photo.heic").write_bytes(b"x")
    assert message(photos) == (
        f"photos/circle/photo.heic is not a file that ends in {ENDINGS}; convert it, or move it out of the folder"
    )


def test_links_that_leave_the_folder(photos, tmp_path) -> None:
    outside = save(tmp_path / "outside", "secret.png")
    way_out = "copy the files behind the links with `cp -rL photos COPY` and use COPY"
    (photos / "circle" / "link.png").symlink_to(outside)
    assert message(photos) == f"photos/circle/link.png is a link to a file outside photos ({outside}); {way_out}"
    (photos / "circle" / "link.png").unlink()
    (photos / "other").symlink_to(tmp_path / "outside")
    assert message(photos) == f"photos/other is a link to a folder ({tmp_path / 'outside'}); {way_out}"
    (photos / "other").unlink()
    (photos / "circle" / "gone.png").symlink_to("nowhere.png")
    assert message(photos) == "photos/circle/gone.png is a broken link; remove it"


def test_an_unreadable_file_is_named(photos, monkeypatch) -> None:
    def refuse(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert message(photos) == (
        "photos/circle/0.jpg cannot be read (Permission denied); change its permissions or remove it"
    )


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"channels": 2}, "channels must be 1 (gray) or 3 (color), got 2"),
        ({"image_size": 0}, "image_size must be at least 1 pixel, got 0"),
        ({"held_out": 0.5}, "held_out must lie between 0 and 0.5, got 0.5; 0.1 holds out 10 % of each class"),
    ],
)
def test_invalid_settings(photos, settings, text) -> None:
    with pytest.raises(ValueError, match="must") as caught:
        ImageFolder(path=str(photos), **settings)
    assert str(caught.value) == text
