"""HubImages: any column names, integer, string and named labels, missing splits; no network for a path."""

from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from fna_lightning.errors import UsageError
from fna_lightning.tasks import HubImages
from fna_lightning.tasks.data import hub
from fna_lightning.tasks.image import codec
from fna_lightning.tasks.image.hub_images import hub_name_or_folder

from helpers.cifar_folder import png, random_images

# gray and color images of two sizes
FILES = [
    png(random_images(1, seed, 20)[0] if seed % 2 else random_images(1, seed, 12)[0, :, :, 0]) for seed in range(12)
]


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def write(split: str, labels: list[Any], files: list[bytes] | None = None, label_column: str = "kind") -> Path:
    """Write a split of the data set in the folder ``shapes``."""
    folder = Path("shapes")
    folder.mkdir(exist_ok=True)
    rows = [{"bytes": content, "path": None} for content in files or FILES[: len(labels)]]
    table = pa.table({"picture": rows, label_column: labels, "note": ["-"] * len(labels)})
    pq.write_table(table, folder / f"{split}-00000-of-00001.parquet")
    return folder


def prepared(**settings: Any) -> HubImages:
    columns = {"image_column": "picture", "label_column": "kind", "image_size": 8}
    data = HubImages(path="shapes", **{**columns, **settings})
    data.prepare_data()
    return data


def message(**settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        prepared(**settings)
    return str(caught.value)


def test_string_labels_and_held_out_splits() -> None:
    write("train", ["owl", "cat", "owl", "cat"] * 3)
    data = prepared()
    assert (data.class_names, data.num_classes, data.channels, data.image_size) == (["cat", "owl"], 2, 3, 8)
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [8, 2, 2]
    images = data.split("train")
    expected = Image.fromarray(random_images(1, 1, 20)[0]).resize((8, 8), Image.Resampling.BICUBIC)
    assert np.abs(images.pixels[1].transpose(1, 2, 0).astype(int) - np.asarray(expected)).max() <= 1
    assert images.labels.tolist() == [1, 0, 1, 0] * 3
    assert next(iter(prepared(channels=1).train_dataloader())).images.shape == (8, 1, 8, 8)


def test_integer_labels_and_splits_of_the_data_set() -> None:
    write("train", [7, 10, 7, 10])
    write("validation", [10, 7])
    write("test", [7])
    data = prepared()
    assert data.class_names == ["7", "10"]
    assert [data.split(name).labels[data.split(name).rows].tolist() for name in ("train", "val", "test")] == [
        [0, 1, 0, 1],
        [1, 0],
        [0],
    ]


def test_named_labels() -> None:
    features = datasets.Features(picture=datasets.Image(), kind=datasets.ClassLabel(names=["owl", "cat"]))
    rows = {"picture": [{"bytes": content, "path": None} for content in FILES], "kind": [0, 1] * 6}
    Path("shapes").mkdir()
    datasets.Dataset.from_dict(rows, features).to_parquet("shapes/train-00000-of-00001.parquet")
    data = prepared()
    assert data.class_names == ["owl", "cat"]
    assert data.split("train").labels.tolist() == [0, 1] * 6


def test_images_are_read_once(monkeypatch) -> None:
    write("train", ["owl", "cat"] * 4)
    prepared()
    monkeypatch.setattr(codec, "_open", None)
    monkeypatch.setattr(datasets, "load_dataset", None)
    assert prepared(held_out=0.3).class_names == ["cat", "owl"]


def test_wrong_columns() -> None:
    write("train", ["owl", "cat"] * 4)
    assert message(image_column="image") == (
        "shapes has the columns picture, kind, note and no 'image'; set --data.image_column to one of them"
    )
    assert message(label_column="label") == (
        "shapes has the columns picture, kind, note and no 'label'; set --data.label_column to one of them"
    )
    assert message(image_column="kind", label_column="note").startswith(
        "the column 'note' of shapes has only one class"
    )
    write("train", [1, 2] * 4)
    assert message(image_column="kind") == (
        "the column 'kind' of shapes holds no images; set --data.image_column to another of its columns: picture, "
        "kind, note"
    )


@pytest.mark.parametrize(
    ("train", "test", "text"),
    [
        (["owl"] * 6, None, "the column 'kind' of shapes has only one class, 'owl'; a classifier needs at least two"),
        (
            [0.5, 1.0] * 3,
            None,
            (
                "the column 'kind' of shapes has the label 0.5; labels must be integers or strings, so remove such "
                "rows or set --data.label_column to another column"
            ),
        ),
        (
            ["owl", "cat"] * 3,
            ["fox"],
            (
                "split 'test' of shapes has the label 'fox', which is none of the classes of its split 'train'; remove "
                "its rows"
            ),
        ),
        (
            ["owl", "cat"],
            None,
            (
                "class 'cat' has 1 training image, too few to hold out 1 for val and test each; add images to the "
                "class or remove it"
            ),
        ),
    ],
    ids=["one class", "fractions", "unknown class", "too few"],
)
def test_invalid_labels(train, test, text) -> None:
    write("train", train)
    if test:
        write("test", test)
    with pytest.raises(UsageError) as caught:
        prepared().split("train")
    assert str(caught.value) == text


def test_a_broken_image_is_named() -> None:
    write("train", ["owl", "cat"], [FILES[0], b"no image"])
    assert message() == (
        "image 1 of split 'train' of shapes cannot be decoded as an image (cannot identify image file); replace or "
        "remove it"
    )


def test_a_path_is_never_taken_for_a_name_on_the_hub(monkeypatch) -> None:
    monkeypatch.setattr(hub, "hub_is_reachable", lambda: pytest.fail("the network was used"))
    Path("photos").mkdir()
    for path in ("photos/cta", "./mnist", "/data/mnist", "~/mnist", "data/photos/cats", "ylecun\\mnist"):
        with pytest.raises(UsageError, match=r"^folder not found: --data\.path "):
            HubImages(path=path)
    Path("mnist.zip").write_bytes(b"")
    with pytest.raises(UsageError, match=r"^--data\.path mnist\.zip is a file; unpack it and give the folder$"):
        HubImages(path="mnist.zip")
    with pytest.raises(UsageError) as caught:
        HubImages()
    assert str(caught.value) == (
        "--data.path is not set; it must name a data set on the hub, for example --data.path hub:ylecun/mnist"
    )
    with pytest.raises(UsageError) as caught:
        HubImages(path="ylecun/mnist")
    assert str(caught.value) == (
        f"folder not found: --data.path ylecun/mnist in {Path.cwd()}; a data set on the hub is written hub:ylecun/mnist"
    )
    assert [hub_name_or_folder(name) for name in ("hub:ylecun/mnist", "hub:mnist")] == ["hub:ylecun/mnist", "hub:mnist"]


def test_fna_data_has_precedence_over_the_hub(monkeypatch, tmp_path) -> None:
    (tmp_path / "sets" / "mnist").mkdir(parents=True)
    monkeypatch.setenv("FNA_DATA", str(tmp_path / "sets"))
    assert hub_name_or_folder("hub:ylecun/mnist") == str(tmp_path / "sets" / "mnist")
    monkeypatch.setenv("FNA_DATA", str(tmp_path / "stes"))
    with pytest.raises(UsageError, match=r"FNA_DATA is '.*stes', which does not exist"):
        hub_name_or_folder("hub:ylecun/mnist")
