"""CIFAR-10: decoded once and memory-mapped; errors name the file."""

import hashlib
import pickle
from pathlib import Path

import numpy as np
import pytest
from torchvision.datasets import CIFAR10

from fna_lightning.errors import UsageError
from fna_lightning.tasks import Cifar10Data
from fna_lightning.tasks.image import cifar10_source as source

from helpers.cifar_folder import cifar_folder, png, random_images, write_split


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))


def prepared(folder: Path, **settings: object) -> Cifar10Data:
    data = Cifar10Data(path=str(folder), **settings)
    data.prepare_data()
    return data


def test_pixels_match_the_files_and_are_memory_mapped(tmp_path) -> None:
    data = prepared(cifar_folder(tmp_path / "cifar10"))
    test = data.split("test")
    assert isinstance(test.pixels, np.memmap)
    assert np.array_equal(test.pixels, random_images(40, 1).transpose(0, 3, 1, 2))
    batch = next(iter(data.test_dataloader()))
    assert batch.images.numpy().tobytes() == test.pixels[:64].tobytes()
    assert batch.labels.tolist() == [i % 10 for i in range(40)]


def test_splits_are_disjoint_and_stratified(tmp_path) -> None:
    data = prepared(cifar_folder(tmp_path / "cifar10"), validation=0.2)
    train, val = data.split("train"), data.split("val")
    assert not set(train.rows) & set(val.rows)
    assert len(train) == 160
    assert np.bincount(val.labels[val.rows]).tolist() == [4] * 10


def test_every_epoch_has_all_images_in_a_new_order(tmp_path) -> None:
    loader = prepared(cifar_folder(tmp_path / "cifar10"), batch_size=32).train_dataloader()
    orders = []
    for epoch in range(2):
        loader.batch_sampler.set_epoch(epoch)
        orders.append([index for batch in loader.batch_sampler for index in batch])
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1]) == list(range(180))


def test_images_are_decoded_once(tmp_path, monkeypatch) -> None:
    folder = cifar_folder(tmp_path / "cifar10")
    prepared(folder)
    monkeypatch.setattr(source, "decode_exact", None)
    assert len(prepared(folder).split("test")) == 40


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda files, labels: files.__setitem__(7, files[7][:-60]),
            r"image 7 of split 'train' of .* cannot be decoded as an image \(.+\)",
        ),
        (
            lambda files, labels: files.__setitem__(3, png(random_images(1)[0, :, :, 0])),
            r"image 3 .*gray.*RGB.*convert",
        ),
        (
            lambda files, labels: files.__setitem__(5, png(random_images(1, size=16)[0])),
            r"image 5 .*16 x 16 .* 32 x 32",
        ),
        (
            lambda files, labels: labels.__setitem__(2, 10),
            r"split 'train' of .* has the label 10; labels must be integers from 0 to 9",
        ),
        (lambda files, labels: labels.__setitem__(2, -1), r"has the label -1; labels must be integers from 0 to 9"),
    ],
    ids=["truncated", "gray", "size", "label too large", "negative label"],
)
def test_an_invalid_image_or_label_is_named(tmp_path, damage, message) -> None:
    folder = cifar_folder(tmp_path / "cifar10")
    files, labels = [png(image) for image in random_images(20)], [i % 10 for i in range(20)]
    damage(files, labels)
    write_split(folder, "train", files, labels)
    with pytest.raises(UsageError, match=message):
        prepared(folder)


def test_a_missing_column_is_named(tmp_path) -> None:
    folder = tmp_path / "cifar10"
    for split in ("train", "test"):
        write_split(folder, split, [png(image) for image in random_images(10)], list(range(10)), column="picture")
    with pytest.raises(UsageError, match="columns picture, label and no img; expected the splits train and test"):
        prepared(folder)


def test_splits_with_different_columns_raise(tmp_path) -> None:
    folder = cifar_folder(tmp_path / "cifar10")
    write_split(folder, "train", [png(image) for image in random_images(10)], list(range(10)), column="picture")
    with pytest.raises(UsageError, match=r"cannot be loaded .*; expected the splits train and test"):
        prepared(folder)


def torchvision_folder(root: Path) -> dict[str, str]:
    """Write random images in torchvision's layout and return the digests of the files."""
    folder = root / "cifar-10-batches-py"
    folder.mkdir(parents=True)
    digests = {}
    for number, name in enumerate([f"data_batch_{i}" for i in range(1, 6)] + ["test_batch", "batches.meta"]):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 3072), dtype=np.uint8)
        content: dict[str, object] = {"data": pixels, "labels": [i % 10 for i in range(20)]}
        if name == "batches.meta":
            content = {"label_names": list(source.LABELS)}
        (folder / name).write_bytes(pickle.dumps(content))
        digests[name] = hashlib.md5((folder / name).read_bytes()).hexdigest()
    return digests


def test_torchvisions_folder_is_only_read_if_its_digests_are_the_published_ones(tmp_path, monkeypatch) -> None:
    digests = torchvision_folder(tmp_path / "tv")
    with pytest.raises(
        UsageError, match="cifar-10-batches-py is incomplete or its files differ from the published ones"
    ):
        prepared(tmp_path / "tv")
    monkeypatch.setattr(CIFAR10, "train_list", [[f"data_batch_{i}", digests[f"data_batch_{i}"]] for i in range(1, 6)])
    monkeypatch.setattr(CIFAR10, "test_list", [["test_batch", digests["test_batch"]]])
    monkeypatch.setattr(CIFAR10, "meta", {**CIFAR10.meta, "md5": digests["batches.meta"]})
    for path in (tmp_path / "tv", tmp_path / "tv" / "cifar-10-batches-py"):
        data = prepared(path)
        expected = np.random.default_rng(5).integers(0, 256, (20, 3072), dtype=np.uint8).reshape(20, 3, 32, 32)
        assert np.array_equal(data.split("test").pixels, expected)
        assert len(data.split("train")) + len(data.split("val")) == 100


@pytest.mark.data
def test_the_sizes_of_the_real_data_set(real_data) -> None:
    data = prepared(real_data / "cifar10")
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [45_000, 5_000, 10_000]
    assert np.bincount(data.split("test").labels).tolist() == [1000] * 10
