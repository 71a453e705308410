"""Where a data set is: files and folders are never mistaken for names on the hub, and a wrong FNA_DATA is named."""

import logging
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks import Cifar10Data, ImdbData, Multi30kData, ParallelText, TextFiles
from fna_lightning.tasks.data import hub

from helpers.imdb_folder import imdb_folder


@pytest.fixture(autouse=True)
def no_network(tmp_path, monkeypatch) -> None:
    """An empty working directory without a network: a connection fails the test."""

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("this code must not use the network")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FNA_DATA", raising=False)
    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("mine.csv", "no file or folder 'mine.csv'; correct --data.path"),
        ("./x", "no file or folder './x'; correct --data.path"),
        ("../mine.csv", "no file or folder '../mine.csv'; correct --data.path"),
        (
            "data/mine",
            (
                "no file or folder 'data/mine', because there is no folder 'data'; correct --data.path, or write "
                "hub:data/mine for a data set on the Hugging Face hub"
            ),
        ),
        ("/nowhere/mine.csv", "no file or folder '/nowhere/mine.csv', because there is no folder '/nowhere'; correct "),
        ("hub:a/b/c", "'hub:a/b/c' is not a name on the hub; write hub:NAME or hub:OWNER/NAME"),
    ],
)
@pytest.mark.parametrize("data", [TextFiles, ParallelText])
def test_a_missing_file_is_named(data, path, message) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        data(path=path).prepare_data()


def test_similar_names_of_the_folder_are_listed(tmp_path) -> None:
    for name in ("Mine.csv", "mine2.csv", "mine.tsv", "other.csv"):
        (tmp_path / name).write_text("x")
    message = "no file or folder 'mine.csv'; similar names in that folder: Mine.csv, mine2.csv, mine.tsv; correct"
    with pytest.raises(UsageError, match=message):
        TextFiles(path="mine.csv").prepare_data()


@pytest.mark.parametrize("data", [ImdbData, Multi30kData, Cifar10Data])
def test_a_missing_folder_of_a_known_data_set_is_named(data) -> None:
    with pytest.raises(UsageError, match=r"no file or folder 'imdb2'; correct --data\.path; expected the splits train"):
        data(path="imdb2").prepare_data()
    Path("mine.csv").write_text("text,label\n")
    with pytest.raises(UsageError, match=r"'mine.csv' is a file, not a folder; expected the splits train"):
        data(path="mine.csv").prepare_data()


@pytest.mark.parametrize("data", [ImdbData, Multi30kData, Cifar10Data, lambda: TextFiles(path="hub:a/b").vocab_size])
def test_a_data_variable_that_is_not_a_folder_is_named(data, tmp_path, monkeypatch) -> None:
    way_out = "; set it to the folder that holds the data sets, or unset it to download them from the hub"
    monkeypatch.setenv("FNA_DATA", str(tmp_path / "dta"))
    with pytest.raises(UsageError, match=re.escape(f"FNA_DATA is '{tmp_path / 'dta'}', which does not exist{way_out}")):
        data()
    (tmp_path / "dta").write_text("")
    with pytest.raises(
        UsageError, match=re.escape(f"FNA_DATA is '{tmp_path / 'dta'}', which is not a folder{way_out}")
    ):
        data()


@pytest.mark.parametrize(
    ("data", "name"), [(ImdbData, "imdb"), (Multi30kData, "multi30k"), (Cifar10Data, "cifar10")], ids=str
)
def test_a_data_variable_without_the_data_set_is_named_before_the_hub_is_asked(
    data, name, tmp_path, monkeypatch, caplog
) -> None:
    order: list[str] = []

    def unreachable() -> bool:
        order.append(caplog.text)
        raise UsageError("the hub was asked")

    monkeypatch.setattr(hub, "hub_is_reachable", unreachable)
    (tmp_path / "parent" / "sets").mkdir(parents=True)
    monkeypatch.setenv("FNA_DATA", str(tmp_path / "parent"))
    with caplog.at_level(logging.WARNING, logger="fna_lightning"), pytest.raises(UsageError, match="the hub was asked"):
        data().prepare_data()
    reason = f"FNA_DATA is '{tmp_path / 'parent'}', which has no folder '{name}' (it has sets), so "
    assert reason in order[0]


@pytest.mark.parametrize("folder", ["imdb", "stanfordnlp/imdb"])
def test_a_name_on_the_hub_is_found_in_the_data_variable(folder, tmp_path, monkeypatch) -> None:
    imdb_folder(tmp_path / "sets" / folder)
    monkeypatch.setenv("FNA_DATA", str(tmp_path / "sets"))
    data: Any = TextFiles(path="hub:stanfordnlp/imdb")
    assert data.class_names == ["0", "1"]
    assert {name: len(data.split(name)) for name in ("train", "val", "test")} == {"train": 54, "val": 6, "test": 20}
