"""IMDb: splits, cache and error messages on a small folder in the hub's layout, and the sizes of the real data set."""

import logging
import os
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from fna_lightning.errors import UsageError
from fna_lightning.tasks import ImdbData
from fna_lightning.tasks.data.tokenization import Tokenization
from fna_lightning.training.dataloading import sample_loader

from helpers.imdb_folder import imdb_folder, write_split

WORDS = Tokenization(kind="word", vocab_size=100, max_length=16)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FNA_DATA", raising=False)
    return tmp_path / "cache" / "imdb"


@pytest.fixture
def no_network(monkeypatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise OSError("this test has no network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


def prepared(path: Path, **settings: Any) -> ImdbData:
    data = ImdbData(path=str(path), **{"tokenization": WORDS, **settings})
    data.prepare_data()
    return data


def entries(cache: Path) -> dict[str, int]:
    """Return the names of the cache folders and their modification times."""
    return {path.name: path.stat().st_mtime_ns for path in cache.iterdir() if path.is_dir()}


def test_a_folder_is_read_without_network(tmp_path, no_network) -> None:
    data = prepared(imdb_folder(tmp_path / "imdb"))
    assert {name: len(data.split(name)) for name in ("train", "val", "test")} == {"train": 54, "val": 6, "test": 20}
    batches = list(data.train_dataloader())
    assert sum(len(batch.labels) for batch in batches) == 54
    assert max(batch.tokens.max() for batch in batches) < data.vocab_size == 100


def test_texts_that_are_not_utf_8_raise(tmp_path) -> None:
    folder = imdb_folder(tmp_path / "imdb")
    table = pa.table({"text": ["a b", "qqqq"], "label": [0, 1]})
    (path,) = folder.glob("train-*")
    pq.write_table(table, path, compression="none", use_dictionary=False)
    path.write_bytes(path.read_bytes().replace(b"qqqq", b"\xe3\xff\xff\xff"))
    with pytest.raises(UsageError, match=r"cannot be loaded .*can't decode byte 0xe3"):
        prepared(folder)


def test_validation_blocks_must_have_a_review(tmp_path) -> None:
    with pytest.raises(ValueError, match="validation_block must be at least 1 review, got 0"):
        prepared(imdb_folder(tmp_path / "imdb"), validation_block=0)


def test_train_and_validation_are_disjoint_and_complete(tmp_path) -> None:
    data = prepared(imdb_folder(tmp_path / "imdb"), validation=0.3)
    starts = [set(data.split(name).starts.tolist()) for name in ("train", "val")]
    assert not starts[0] & starts[1]
    assert len(starts[0] | starts[1]) == 60
    assert data.split("val").labels.tolist() == [0] * 9 + [1] * 9


def test_held_out_reviews_depend_on_the_seed_only(tmp_path) -> None:
    folder = imdb_folder(tmp_path / "imdb")
    first, again, other = (prepared(folder, split_seed=seed).split("val").starts.tolist() for seed in (1, 1, 2))
    assert first == again != other


def test_test_reviews_can_be_dropped_from_the_training_reviews(tmp_path) -> None:
    folder = imdb_folder(tmp_path / "imdb", shared=4)
    data = prepared(folder, drop_duplicates=True)
    assert len(data.split("train")) + len(data.split("val")) == 56
    assert len(data.split("test")) == 20


def test_long_reviews_are_truncated_and_batches_padded_to_the_longest(tmp_path) -> None:
    data = prepared(imdb_folder(tmp_path / "imdb"))
    assert data.split("train").lengths.max() == 16
    batch = next(iter(data.val_dataloader()))
    assert batch.tokens.size(1) == batch.lengths.max() <= 16


def test_every_batch_can_be_padded_to_the_same_length(tmp_path) -> None:
    tokenization = Tokenization(kind="word", vocab_size=100, max_length=64)
    data = prepared(imdb_folder(tmp_path / "imdb"), tokenization=tokenization, pad_to_max=True, batch_size=7)
    assert {batch.tokens.size(1) for batch in data.train_dataloader()} == {64}


def test_only_affected_parts_of_the_cache_are_rebuilt(tmp_path, own_cache) -> None:
    folder = imdb_folder(tmp_path / "imdb")
    prepared(folder)
    before = entries(own_cache)
    assert len(before) == 3
    prepared(folder, validation=0.2, split_seed=5, drop_duplicates=True, batch_size=4, pad_to_max=True)
    prepared(folder, tokenization=Tokenization(kind="word", vocab_size=100, max_length=8))
    assert entries(own_cache) == before
    prepared(folder, tokenization=Tokenization(kind="word", vocab_size=100, lowercase=True))
    after = entries(own_cache)
    assert len(after) == 6
    assert before.items() <= after.items()


def test_changed_reviews_are_tokenized_again(tmp_path, own_cache) -> None:
    prepared(imdb_folder(tmp_path / "imdb"))
    prepared(imdb_folder(tmp_path / "imdb", train=50))
    assert len(entries(own_cache)) == 6


@pytest.mark.parametrize("victim", ["tokenizer-*/tokenizer.json", "train-*/tokens.npy", "test-*/labels.npy"])
@pytest.mark.parametrize("content", [b"", b"\x00garbage" * 1000], ids=["truncated", "garbage"])
def test_a_damaged_cache_is_rebuilt(tmp_path, own_cache, caplog, victim, content) -> None:
    folder = imdb_folder(tmp_path / "imdb")
    expected = [prepared(folder).split(name)[3][0].tolist() for name in ("train", "test")]
    before = entries(own_cache)
    (file,) = own_cache.glob(victim)
    file.write_bytes(content)
    with caplog.at_level(logging.WARNING, logger="fna_lightning"):
        data = prepared(folder)
    assert f"the cache {file.parent} is damaged ({file.name} has changed) and will be rebuilt" in caplog.text
    assert [data.split(name)[3][0].tolist() for name in ("train", "test")] == expected
    assert {name for name, time in entries(own_cache).items() if time != before[name]} == {file.parent.name}


def test_a_filled_cache_needs_neither_tokenization_nor_its_libraries(tmp_path) -> None:
    folder = imdb_folder(tmp_path / "imdb")
    prepared(folder)
    script = (
        "import sys\n"
        "from fna_lightning.tasks import ImdbData\n"
        "from fna_lightning.tasks.data.tokenization import Tokenization\n"
        f"data = ImdbData(path={str(folder)!r}, tokenization=Tokenization(kind='word', vocab_size=100))\n"
        "data.prepare_data(); print(len(data.split('train')), {'datasets', 'tokenizers', 'pyarrow'} & set(sys.modules))"
    )
    completed = subprocess.run(
        [sys.executable, "-P", "-c", script], capture_output=True, text=True, env=os.environ, check=True
    )
    # torchmetrics imports transformers if it is installed, which imports tokenizers
    imported = {"tokenizers"} if find_spec("transformers") else set()
    assert completed.stdout.strip() in ("54 set()", f"54 {imported}")


def test_the_data_variable_names_the_parent_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_DATA", str(tmp_path))
    assert ImdbData().source.path == "hub:stanfordnlp/imdb"
    imdb_folder(tmp_path / "imdb")
    assert ImdbData().source.path == str(tmp_path / "imdb")


@pytest.mark.e2e
def test_the_error_without_network_and_folder_names_both_solutions(tmp_path) -> None:
    script = (
        "import socket\n"
        "def refuse(*args, **kwargs): raise OSError('no network')\n"
        "socket.create_connection = socket.getaddrinfo = socket.socket.connect = refuse\n"
        "from fna_lightning.tasks import ImdbData; ImdbData().prepare_data()"
    )
    env = {**os.environ, "HF_HOME": str(tmp_path / "hub")}
    completed = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, env=env)
    assert completed.returncode == 1
    last = completed.stderr.strip().splitlines()[-1]
    assert "'stanfordnlp/imdb' cannot be loaded" in last
    assert "connect to the internet once" in last
    assert "--data.path" in last


def test_a_missing_folder_raises(tmp_path) -> None:
    message = f"no file or folder '{tmp_path / 'nowhere'}'; correct --data.path; expected the splits train and test"
    with pytest.raises(UsageError, match=message):
        prepared(tmp_path / "nowhere")


def test_a_folder_without_test_reviews_raises_with_the_expected_layout(tmp_path) -> None:
    write_split(tmp_path / "half", "train", ["good", "bad"], [1, 0])
    with pytest.raises(UsageError, match=r"half has the splits train and no 'test'; expected .*test-\*\.parquet"):
        prepared(tmp_path / "half")


def test_an_empty_folder_raises_with_the_expected_layout(tmp_path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match=r"empty' cannot be loaded .* expected the splits train and test"):
        prepared(tmp_path / "empty")


def test_a_label_out_of_range_is_named(tmp_path) -> None:
    for name in ("train", "test"):
        write_split(tmp_path / "odd", name, ["good", "bad"], [1, -1])
    message = r"split 'train' of .*odd has the label -1; labels must be integers from 0 to 1"
    with pytest.raises(UsageError, match=message):
        prepared(tmp_path / "odd")


@pytest.mark.parametrize("share", [0.0, 1.0, -0.1])
def test_the_validation_share_must_lie_between_0_and_1(share) -> None:
    with pytest.raises(ValueError, match=f"validation must lie between 0 and 1, got {share}"):
        ImdbData(validation=share)


@pytest.mark.data
def test_the_sizes_of_the_real_data_set(real_data, no_network) -> None:
    tokenization = Tokenization(kind="word", vocab_size=20_000, lowercase=True)
    data = prepared(real_data / "imdb", tokenization=tokenization, drop_duplicates=True)
    kept = [data.split(name) for name in ("train", "val")]
    assert sum(map(len, kept)) == 25_000 - 123
    assert len(data.split("test")) == 25_000
    assert data.split("test").labels.mean() == 0.5
    full = prepared(real_data / "imdb", tokenization=tokenization)
    assert [len(full.split(name)) for name in ("train", "val")] == [22_500, 2_500]
    assert full.split("val").labels.mean() == 0.5
    tokens = next(iter(full.train_dataloader())).tokens
    assert 1 < tokens.max() < 20_000


@pytest.mark.data
def test_a_limited_validation_of_the_real_data_set_has_both_classes(real_data, no_network) -> None:
    loader = prepared(real_data / "imdb").val_dataloader()
    shares = {}
    for name, evaluated in (("whole", loader), ("limited", sample_loader(loader, 10))):
        batches = [batch for _, batch in zip(range(10), evaluated, strict=False)]
        shares[name] = float(torch.cat([batch.labels for batch in batches]).float().mean())
    assert shares["whole"] == 0.0
    assert 0.4 < shares["limited"] < 0.6
