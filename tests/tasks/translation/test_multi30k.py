"""Multi30K: two folder layouts, tokenizers trained on the training texts only, and error messages."""

import json
from pathlib import Path
from typing import Any

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks import Multi30kData
from fna_lightning.tasks.data.tokenization import UNKNOWN, Tokenization
from fna_lightning.tasks.translation.codec import BEGIN, END
from fna_lightning.tasks.translation.parallel_source import ParallelSource, read_lines

TEXTS = {
    "train": [("A man walks.", "Ein Mann läuft."), ("Two dogs, running!", "Zwei Hunde rennen!")] * 20,
    "val": [("A dog walks.", "Ein Hund läuft.")],
    "test": [("Zyx men run.", "Qwü Männer rennen."), ("", "")],
}


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))


def text_files(folder: Path) -> Path:
    folder.mkdir()
    for split, pairs in TEXTS.items():
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            (folder / f"{split}.{language}").write_text(text, encoding="utf-8")
    return folder


def jsonl_files(folder: Path) -> Path:
    folder.mkdir()
    for split, pairs in TEXTS.items():
        lines = [json.dumps({"en": english, "de": german}) for english, german in pairs]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def dataset(folder: Path, *, tokenizer: dict[str, Any] | None = None, **settings: Any) -> Multi30kData:
    tokenization = Tokenization(**{"kind": "bpe", "vocab_size": 300, "max_length": 64, **(tokenizer or {})})
    return Multi30kData(path=str(folder), tokenization=tokenization, **settings)


@pytest.mark.parametrize("layout", [text_files, jsonl_files])
def test_tokens_decode_to_the_original_texts(layout, tmp_path) -> None:
    data = dataset(layout(tmp_path / "pairs"))
    data.prepare_data()
    codec = data.codec
    for split, pairs in TEXTS.items():
        sources, targets = data.texts(split)
        assert list(zip(sources, targets, strict=True)) == pairs
        for source, target, index in data.split(split):
            assert codec.decode(target.tolist()) == targets[index]
            assert codec.encode(sources[index]) == source.tolist()
            assert {BEGIN, END, UNKNOWN}.isdisjoint([*source.tolist(), *target.tolist()])


def test_tokenizers_are_trained_on_the_training_texts_only(tmp_path) -> None:
    data = dataset(text_files(tmp_path / "pairs"), tokenizer={"kind": "word", "vocab_size": 50})
    data.prepare_data()
    assert UNKNOWN in data.codec.encode("Zyx")
    assert UNKNOWN not in data.codec.encode("A man walks.")


def test_joint_or_separate_tokenizers(tmp_path) -> None:
    folder = text_files(tmp_path / "pairs")
    joint, separate = dataset(folder), dataset(folder, joint=False)
    joint.prepare_data()
    separate.prepare_data()
    assert joint.codec.source_tokenizer == joint.codec.target_tokenizer
    assert separate.codec.source_tokenizer != separate.codec.target_tokenizer


def test_a_filled_cache_needs_no_texts(tmp_path, monkeypatch) -> None:
    folder = text_files(tmp_path / "pairs")
    dataset(folder).prepare_data()

    def fail(self: ParallelSource) -> None:
        raise AssertionError("the texts were read again")

    monkeypatch.setattr(ParallelSource, "read", fail)
    again = dataset(folder)
    again.prepare_data()
    assert len(again.split("train")) == 40


def test_batches_have_begin_and_end_tokens(tmp_path) -> None:
    data = dataset(text_files(tmp_path / "pairs"), batch_tokens=64)
    data.prepare_data()
    batch = next(iter(data.test_dataloader()))
    assert batch.target[:, 0].eq(BEGIN).all()
    for row in range(len(batch.number)):
        assert batch.source[row, batch.source_lengths[row] - 1] == END
        assert batch.target[row, batch.target_lengths[row]] == END
    # an empty source consists of END
    assert batch.source_lengths.min() == 1


def test_files_of_different_lengths_name_both_counts(tmp_path) -> None:
    folder = text_files(tmp_path / "pairs")
    with (folder / "train.de").open("a") as file:
        file.write("Einer zu viel.\n")
    with pytest.raises(UsageError, match=r"train\.en has 40 lines and train\.de has 41 .* must be the translation of"):
        dataset(folder).prepare_data()


def test_a_line_that_is_not_utf_8_is_named(tmp_path) -> None:
    folder = text_files(tmp_path / "pairs")
    (folder / "val.de").write_bytes("gut\nschön\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"line 2 of .*val\.de is not UTF-8 \(byte 4\); convert the file"):
        dataset(folder).prepare_data()


def test_a_missing_file_split_or_column_is_named(tmp_path) -> None:
    folder = text_files(tmp_path / "texts")
    (folder / "test.de").unlink()
    with pytest.raises(UsageError, match=r"test\.de cannot be read .* one sentence per line"):
        dataset(folder).prepare_data()
    lines = jsonl_files(tmp_path / "lines")
    with pytest.raises(UsageError, match=r"has the columns .* and no fr; expected the splits"):
        dataset(lines, target="fr").prepare_data()
    (lines / "val.jsonl").unlink()
    with pytest.raises(UsageError, match="has the splits train, test and no 'val'"):
        dataset(lines).prepare_data()
    with pytest.raises(UsageError, match=r"no file or folder .*nowhere'; correct --data.path; expected the splits"):
        dataset(tmp_path / "nowhere").prepare_data()


def test_only_line_feeds_separate_lines(tmp_path) -> None:
    (tmp_path / "some.txt").write_bytes(b"one\r\n\ntwo\xe2\x80\xa8still two\n")
    assert read_lines(tmp_path / "some.txt") == ["one", "", "two\u2028still two"]
    (tmp_path / "none.txt").write_bytes(b"")
    assert read_lines(tmp_path / "none.txt") == []


@pytest.mark.data
def test_the_sizes_of_the_real_data_set(real_data, tmp_path) -> None:
    data = dataset(real_data / "multi30k", tokenizer={"vocab_size": 1000})
    data.prepare_data()
    assert [len(data.split(name)) for name in ("train", "val", "test")] == [29_000, 1014, 1000]
    _, references = data.texts("test")
    codec = data.codec
    for _, target, index in data.split("test"):
        assert codec.decode(target.tolist()) == " ".join(references[index].split())
