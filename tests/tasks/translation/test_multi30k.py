"""Multi30K: folders in three layouts, tokenizers of the training texts only, and what is wrong said."""

import json
from pathlib import Path

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks import Multi30kData
from fna_lightning.tasks.data.tokenization import Tokenization
from fna_lightning.tasks.translation.codec import BEGIN, END, UNKNOWN
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
        lines = [json.dumps({"en": one, "de": other}) for one, other in pairs]
        (folder / f"{split}.jsonl").write_text("\n".join(lines) + "\n")
    return folder


def data(folder: Path, **more: object) -> Multi30kData:
    how = Tokenization(**{"kind": "bpe", "vocab_size": 300, "max_length": 64, **more.pop("how", {})})  # type: ignore
    return Multi30kData(path=str(folder), tokenization=how, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize("layout", [text_files, jsonl_files])
def test_texts_come_back_from_their_tokens(layout, tmp_path) -> None:
    it = data(layout(tmp_path / "pairs"))
    it.prepare_data()
    codec = it.codec
    for split, pairs in TEXTS.items():
        sources, targets = it.texts(split)
        assert list(zip(sources, targets, strict=True)) == pairs
        for source, target, index in it.split(split):
            assert codec.decode(target.tolist()) == targets[index]
            assert codec.encode(sources[index]) == source.tolist()
            assert {BEGIN, END, UNKNOWN}.isdisjoint([*source.tolist(), *target.tolist()])


def test_tokenizers_learn_from_the_training_texts_only(tmp_path) -> None:
    it = data(text_files(tmp_path / "pairs"), how={"kind": "word", "vocab_size": 50})
    it.prepare_data()
    assert UNKNOWN in it.codec.encode("Zyx")
    assert UNKNOWN not in it.codec.encode("A man walks.")


def test_joint_or_separate(tmp_path) -> None:
    folder = text_files(tmp_path / "pairs")
    joint, separate = data(folder), data(folder, joint=False)
    joint.prepare_data()
    separate.prepare_data()
    assert joint.codec.source_tokenizer == joint.codec.target_tokenizer
    assert separate.codec.source_tokenizer != separate.codec.target_tokenizer


def test_a_filled_cache_needs_no_texts(tmp_path, monkeypatch) -> None:
    folder = text_files(tmp_path / "pairs")
    data(folder).prepare_data()

    def never(self: ParallelSource) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr(ParallelSource, "read", never)
    again = data(folder)
    again.prepare_data()
    assert len(again.split("train")) == 40


def test_batches_begin_and_end(tmp_path) -> None:
    it = data(text_files(tmp_path / "pairs"), batch_tokens=64)
    it.prepare_data()
    batch = next(iter(it.test_dataloader()))
    assert batch.target[:, 0].eq(BEGIN).all()
    for row in range(len(batch.number)):
        assert batch.source[row, batch.source_lengths[row] - 1] == END
        assert batch.target[row, batch.target_lengths[row]] == END
    # a source without a token is still a source: its end
    assert batch.source_lengths.min() == 1


def test_files_of_different_lengths_name_both_counts(tmp_path) -> None:
    folder = text_files(tmp_path / "pairs")
    with (folder / "train.de").open("a") as file:
        file.write("Einer zu viel.\n")
    with pytest.raises(UsageError, match=r"train\.en has 40 lines and train\.de has 41 .* translations of each other"):
        data(folder).prepare_data()


def test_an_unreadable_line_is_named(tmp_path) -> None:
    folder = text_files(tmp_path / "pairs")
    (folder / "val.de").write_bytes("gut\nschön\n".encode("latin-1"))
    with pytest.raises(UsageError, match=r"line 2 of .*val\.de is not UTF-8 \(byte 4\); convert the file"):
        data(folder).prepare_data()


def test_a_missing_file_split_or_column_is_named(tmp_path) -> None:
    folder = text_files(tmp_path / "texts")
    (folder / "test.de").unlink()
    with pytest.raises(UsageError, match=r"test\.de cannot be read .* one sentence a line"):
        data(folder).prepare_data()
    lines = jsonl_files(tmp_path / "lines")
    with pytest.raises(UsageError, match=r"has the columns .* and no fr; expected are the splits"):
        data(lines, target="fr").prepare_data()
    (lines / "val.jsonl").unlink()
    with pytest.raises(UsageError, match="has the splits train, test and no 'val'"):
        data(lines).prepare_data()
    with pytest.raises(UsageError, match=r"no folder .*; either connect to the internet once"):
        data(tmp_path / "nowhere").prepare_data()


def test_lines_are_lines(tmp_path) -> None:
    (tmp_path / "some.txt").write_bytes(b"one\r\n\ntwo\xe2\x80\xa8still two\n")
    assert read_lines(tmp_path / "some.txt") == ["one", "", "two\u2028still two"]
    (tmp_path / "none.txt").write_bytes(b"")
    assert read_lines(tmp_path / "none.txt") == []


@pytest.mark.data
def test_the_real_thing(real_data, tmp_path) -> None:
    it = data(real_data / "multi30k", how={"vocab_size": 1000})
    it.prepare_data()
    assert [len(it.split(name)) for name in ("train", "val", "test")] == [29_000, 1014, 1000]
    _, references = it.texts("test")
    codec = it.codec
    for _, target, index in it.split("test"):
        assert codec.decode(target.tolist()) == " ".join(references[index].split())
