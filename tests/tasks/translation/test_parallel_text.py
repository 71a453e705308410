"""ParallelText: two text files and tables, columns, splits, and one sentence for each mistake in a file."""

import json
from pathlib import Path
from typing import Any

import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks import ParallelText
from fna_lightning.tasks.data.tokenization import UNKNOWN, Tokenization

PAIRS = [(f"the number {number}", f"die Zahl {number}") for number in range(20)]
SPLITS = ("train", "val", "test")
NAMES = {"source_column": "en", "target_column": "de"}
WORDS = Tokenization(kind="word", vocab_size=100, max_length=16)


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FNA_DATA", raising=False)


def lines(name: str, texts: list[str]) -> None:
    Path(name).write_text("".join(f"{text}\n" for text in texts), encoding="utf-8")


def two_files(pairs: list[tuple[str, str]] = PAIRS, names: str = "en.txt,de.txt") -> str:
    for side, name in enumerate(names.split(",")):
        lines(name, [pair[side] for pair in pairs])
    return names


def tsv(name: str, first: list[str], pairs: list[tuple[str, str]] = PAIRS) -> str:
    lines(name, [*first, *("\t".join(pair) for pair in pairs)])
    return name


def jsonl(name: str, row: Any) -> str:
    lines(name, [json.dumps(row(*pair)) for pair in PAIRS])
    return name


def dataset(path: str | None, **settings: Any) -> ParallelText:
    data = ParallelText(path=path, **{"tokenization": WORDS, **settings})
    data.prepare_data()
    return data


def all_pairs(data: ParallelText) -> list[tuple[str, str]]:
    return sorted(pair for name in SPLITS for pair in zip(*data.texts(name), strict=True))


def message_of(path: str | None, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        dataset(path, **settings)
    return str(caught.value)


@pytest.mark.parametrize(
    ("write", "settings"),
    [
        (two_files, {}),
        (lambda: tsv("a.tsv", ["en\tde"]), {}),
        (lambda: tsv("a.tsv", []), {}),
        (lambda: tsv("a.tsv", []), {"source_column": "1", "target_column": "2"}),
        (lambda: tsv("a.tsv", ["Englisch\tDeutsch"]), {"source_column": "Englisch", "target_column": "Deutsch"}),
        (lambda: jsonl("a.jsonl", lambda en, de: {"en": en, "de": de}), {}),
        (lambda: jsonl("a.jsonl", lambda en, de: {"id": 1, "de": de, "en": en}), NAMES),
        (lambda: jsonl("a.jsonl", lambda en, de: {"id": 1, "translation": {"en": en, "de": de}}), {}),
    ],
    ids=["two files", "header", "no header", "numbers", "names", "jsonl", "three columns", "translation"],
)
def test_every_layout_gives_the_same_pairs(write, settings) -> None:
    data = dataset(write(), **settings)
    assert all_pairs(data) == sorted(PAIRS)
    assert [len(data.split(name)) for name in SPLITS] == [16, 2, 2]
    assert data.source_vocab_size == data.target_vocab_size == 24
    assert data.codec.source_tokenizer == data.codec.target_tokenizer


def test_the_direction_can_be_reversed() -> None:
    data = dataset(tsv("a.tsv", ["en\tde"]), source_column="de", target_column="en")
    assert all_pairs(data) == sorted((german, english) for english, german in PAIRS)


def test_files_for_the_other_splits_and_the_seed() -> None:
    validation = two_files([("unseen", "ungesehen")], "v.en,v.de")
    data = dataset(two_files(), validation=validation, test=0.25)
    assert [len(data.split(name)) for name in SPLITS] == [15, 1, 5]
    assert UNKNOWN in data.codec.encode("unseen")
    test = [dataset("en.txt,de.txt", split_seed=seed).texts("test") for seed in (0, 0, 1)]
    assert test[0] == test[1] != test[2]


def test_the_cache_depends_on_the_content_of_both_files() -> None:
    before = dataset(two_files()).source.fingerprint
    two_files([*PAIRS[:-1], (PAIRS[-1][0], "anders")])
    assert dataset("en.txt,de.txt").source.fingerprint != before


CASES: dict[str, tuple[Any, dict[str, Any], str]] = {
    "no path": (
        lambda: None,
        {},
        "ParallelText needs files to read; set --data.path, for example --data.path english.txt,german.txt",
    ),
    "different counts": (
        lambda: (two_files(), lines("de.txt", ["a", "b"]))[0],
        {},
        "en.txt has 20 lines and de.txt has 2; line i of one file must be the translation of line i of the other",
    ),
    "missing file": (
        lambda: two_files() and "en.txt,de.tx",
        {},
        "no file or folder 'de.tx'; similar names in that folder: de.txt, en.txt; correct --data.path",
    ),
    "three files": (
        lambda: "a,b,c",
        {},
        "'a,b,c' must be two text files with one comma between them, for example english.txt,german.txt",
    ),
    "one text file": (
        lambda: two_files() and "en.txt",
        {},
        (
            "en.txt is neither a table (.csv, .tsv, .jsonl, .parquet) nor two text files; write two text files with a "
            "comma between them, for example --data.path english.txt,german.txt"
        ),
    ),
    "the same file": (
        lambda: two_files() and "en.txt,en.txt",
        {},
        "en.txt is given twice; the translations need a file of their own",
    ),
    "empty file": (lambda: two_files([]), {}, "en.txt is empty; it needs one sentence per line"),
    "empty lines": (
        lambda: two_files([*PAIRS, ("x", ""), ("y", " ")]),
        {},
        "de.txt has 2 empty lines (first line 21); fill in the sentence, or remove the line from both files",
    ),
    "three columns": (
        lambda: jsonl("a.jsonl", lambda en, de: {"id": 1, "en": en, "de": de}),
        {},
        "set --data.source_column and --data.target_column to two columns of a.jsonl: it has the columns id, en, de",
    ),
    "wrong column": (
        lambda: tsv("a.tsv", ["en\tde"]),
        {"target_column": "fr"},
        "a.tsv has no column 'fr'; it has the columns en, de; correct --data.target_column",
    ),
    "one column for both": (
        lambda: tsv("a.tsv", ["en\tde"]),
        {"source_column": "en", "target_column": "en"},
        ("--data.source_column and --data.target_column are both 'en'; the translations need a column of their own"),
    ),
    "too few pairs": (
        lambda: two_files(PAIRS[:3]),
        {},
        (
            "en.txt,de.txt has 3 rows, which is too few to hold out 10% of them for validation; add rows, or set "
            "--data.validation to another share or to a file"
        ),
    ),
    "empty cell": (
        lambda: tsv("a.tsv", [], [*PAIRS, ("x", "")]),
        {},
        "a.tsv has 1 row without a value in the column '2' (row 21); fill it in or remove the row",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_sentence(case) -> None:
    write, settings, message = CASES[case]
    assert message_of(write(), **settings) == message
