"""TextFiles: formats, columns, splits, cache, and one sentence for each mistake in a file."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fna_lightning.errors import UsageError
from fna_lightning.tasks import TextFiles
from fna_lightning.tasks.data import tables, text_encoding
from fna_lightning.tasks.data.tokenization import UNKNOWN, Tokenization

WORDS = Tokenization(kind="word", vocab_size=200, max_length=8)
COLORS = ["red", "green", "blue"]
ROWS = [(f"text {number} is {COLORS[number % 3]}", COLORS[number % 3]) for number in range(30)]
SPLITS = ("train", "val", "test")


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FNA_DATA", raising=False)


def write_csv(name: str, rows: list[tuple[Any, Any]], header: str = "text,label", separator: str = ",") -> str:
    lines = [*([header.replace(",", separator)] if header else []), *(f"{a}{separator}{b}" for a, b in rows)]
    Path(name).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return name


def write_jsonl(name: str, rows: list[tuple[Any, Any]]) -> str:
    Path(name).write_text("".join(json.dumps({"text": a, "label": b}) + "\n" for a, b in rows))
    return name


def write_parquet(name: str, rows: list[tuple[Any, Any]]) -> str:
    pq.write_table(pa.table({"text": [a for a, _ in rows], "label": [b for _, b in rows]}), name)
    return name


def dataset(path: str, **settings: Any) -> TextFiles:
    data = TextFiles(path=path, **{"tokenization": WORDS, **settings})
    data.prepare_data()
    return data


def texts(data: TextFiles, split: str) -> list[str]:
    words = data.codec.words
    return [" ".join(words(tokens.tolist())) for tokens, _ in data.split(split)]


def message_of(path: str, **settings: Any) -> str:
    with pytest.raises(UsageError) as caught:
        dataset(path, **settings)
    return str(caught.value)


@pytest.mark.parametrize(
    "write",
    [
        lambda: write_csv("a.csv", ROWS),
        lambda: write_csv("b.CSV", ROWS),
        lambda: write_csv("c.csv", ROWS, separator=";"),
        lambda: write_csv("d.tsv", ROWS, separator="\t"),
        lambda: write_jsonl("e.jsonl", ROWS),
        lambda: write_parquet("f.parquet", ROWS),
    ],
    ids=["csv", "CSV", "semicolons", "tsv", "jsonl", "parquet"],
)
def test_every_format_gives_the_same_examples(write) -> None:
    data = dataset(write())
    assert data.class_names == ["blue", "green", "red"]
    assert data.num_classes == 3
    assert [len(data.split(name)) for name in SPLITS] == [24, 3, 3]
    names = data.class_names
    for split in SPLITS:
        for text, label in zip(texts(data, split), data.split(split).labels, strict=True):
            assert text.endswith(names[label]) or UNKNOWN in data.codec.encode(text)
    assert data.vocab_size == len({word for split in texts(data, "train") for word in split.split()}) + UNKNOWN + 1


@pytest.mark.parametrize("write", [write_csv, write_jsonl, write_parquet])
def test_integer_labels_are_in_numerical_order(write) -> None:
    suffix = {write_csv: "csv", write_jsonl: "jsonl", write_parquet: "parquet"}[write]
    labels = [10, 9, 2]
    path = write(f"numbers.{suffix}", [(f"t{i}", labels[i % 3]) for i in range(30)])
    assert dataset(path).class_names == ["2", "9", "10"]


def test_cells_are_texts_whatever_they_look_like() -> None:
    """No cell becomes a number, a missing value or a formula."""
    Path("a.csv").write_text(
        'text,label\n"=cmd|\'/c calc\'!A1, x",NA\n007,None\n"two\nlines ""quoted""",null\n'
        + "x,NA\ny,None\nz,null\n" * 3
    )
    data = dataset("a.csv", validation="a.csv", test="a.csv")
    assert data.class_names == ["NA", "None", "null"]
    table = tables.read_table(Path("a.csv"))
    assert table.read("text")[:3] == ["=cmd|'/c calc'!A1, x", "007", 'two\nlines "quoted"']


def test_a_tsv_file_has_no_quotation_rules() -> None:
    write_csv("a.tsv", [('"Hi", she said', "x"), ('an inch is 1"', "y")], separator="\t")
    assert tables.read_table(Path("a.tsv")).read("text") == ['"Hi", she said', 'an inch is 1"']


def test_column_numbers_mean_a_file_without_a_header() -> None:
    write_csv("a.csv", [(label, text) for text, label in ROWS], header="")
    data = dataset("a.csv", text_column="2", label_column="1")
    assert sum(len(data.split(name)) for name in SPLITS) == 30
    assert message_of("a.csv", text_column="3", label_column="1") == (
        "a.csv has no column '3'; it has the columns 1, 2; correct --data.text_column"
    )


@pytest.mark.parametrize(
    ("header", "message"),
    [
        ("review,topic", None),
        ("text,class", None),
        (
            "a,label",
            (
                "set --data.text_column to the column with the text: a.csv: it has the columns a, label, and none of "
                "them is called text"
            ),
        ),
        (
            "sentence,review",
            (
                "set --data.text_column to the column with the text: a.csv: it has the columns sentence, review, and "
                "both sentence and review may be it"
            ),
        ),
    ],
)
def test_obvious_columns_need_no_option(header, message) -> None:
    write_csv("a.csv", ROWS, header=header)
    if message is None:
        assert dataset("a.csv").num_classes == 3
    else:
        assert message_of("a.csv") == message


def test_held_out_rows_are_stratified_disjoint_and_depend_on_the_seed_only() -> None:
    rows = [(f"unique{number}", "rare" if number % 10 == 0 else "common") for number in range(200)]
    write_csv("a.csv", rows)
    splits = {}
    for seed in (0, 0, 1):
        data = dataset("a.csv", validation=0.2, test=0.1, split_seed=seed)
        labels = {name: np.bincount(data.split(name).labels).tolist() for name in SPLITS}
        assert labels == {"train": [126, 14], "val": [36, 4], "test": [18, 2]}
        read = {name: frozenset(texts) for name, (texts, _) in data.read().splits.items()}
        assert len(frozenset.union(*read.values())) == 200
        splits.setdefault(seed, []).append(read)
    assert splits[0][0] == splits[0][1] != splits[1][0]


def test_every_class_keeps_a_training_row() -> None:
    write_csv("a.csv", [("x", "rare"), *[(f"t{i}", f"c{i % 3}") for i in range(19)]])
    data = dataset("a.csv", validation=0.45, test=0.3)
    assert set(data.split("train").labels.tolist()) == {0, 1, 2, 3}


def test_the_tokenizer_is_trained_on_the_training_texts_only() -> None:
    data = dataset(write_csv("a.csv", ROWS), test=write_csv("b.csv", [("unseen", "red")]))
    assert UNKNOWN in data.codec.encode("unseen")
    held_out = [text.split()[1] for text, _ in zip(*data.read().splits["val"], strict=True)]
    assert all(UNKNOWN in data.codec.encode(number) for number in held_out)


def test_files_for_the_other_splits() -> None:
    data = dataset(write_csv("a.csv", ROWS), validation=write_jsonl("v.jsonl", ROWS[:5]), test=0.2)
    assert [len(data.split(name)) for name in SPLITS] == [24, 5, 6]


def test_the_cache_depends_on_the_content_of_the_file(monkeypatch) -> None:
    write_csv("a.csv", ROWS)
    before = dataset("a.csv").codec.state()
    read: list[str] = []
    original = TextFiles.read
    monkeypatch.setattr(TextFiles, "read", lambda self: read.append("read") or original(self))
    Path("a.csv").rename("b.csv")
    assert dataset("b.csv").codec.state() == before
    assert read == []
    write_csv("b.csv", [(text.replace("text", "new"), label) for text, label in ROWS])
    assert dataset("b.csv").codec.state() != before
    assert read == ["read"]


def test_a_folder_in_the_layout_of_the_hub() -> None:
    import datasets

    folder = Path("set")
    for split in ("train", "validation", "test"):
        features = datasets.Features({"text": datasets.Value("string"), "label": datasets.ClassLabel(names=COLORS)})
        examples = {"text": [text for text, _ in ROWS], "label": [COLORS.index(label) for _, label in ROWS]}
        folder.mkdir(exist_ok=True)
        datasets.Dataset.from_dict(examples, features=features).to_parquet(folder / f"{split}-00000-of-00001.parquet")
    data = dataset("set")
    assert data.class_names == COLORS
    assert [len(data.split(name)) for name in SPLITS] == [30, 30, 30]
    assert [len(dataset("set", validation=0.1, test="validation").split(name)) for name in SPLITS] == [27, 3, 30]
    assert message_of("set", test="tset").startswith("set has the splits train, validation, test and no 'tset'; ")


def invalid_cases() -> dict[str, tuple[Any, dict[str, Any], str]]:
    good = ROWS
    return {
        "no path": (
            lambda: None,
            {},
            (
                "TextFiles needs a file to read; set --data.path, for example --data.path "
                "mine.csv --data.text_column review --data.label_column topic"
            ),
        ),
        "wrong text column": (
            lambda: write_csv("a.csv", good),
            {"text_column": "txt"},
            (
                "a.csv has no column 'txt'; "
                "did you mean 'text'? it has the columns text, label; correct --data.text_column"
            ),
        ),
        "wrong label column": (
            lambda: write_csv("a.csv", good),
            {"label_column": "topic"},
            ("a.csv has no column 'topic'; it has the columns text, label; correct --data.label_column"),
        ),
        "empty file": (lambda: write_csv("a.csv", [], header=" "), {}, "a.csv is empty; it needs one row per example"),
        "only a header": (
            lambda: write_csv("a.csv", []),
            {},
            ("a.csv has no row below its first line, which names the columns; add rows"),
        ),
        "empty Parquet": (
            lambda: write_parquet("a.parquet", []),
            {},
            "a.parquet is empty; it needs one row per example",
        ),
        "one class": (
            lambda: write_csv("a.csv", [("x", "red")] * 9),
            {},
            (
                "a.csv has only the class 'red' in the "
                "column 'label'; classification needs at least two, so add rows of other classes or correct "
                "--data.label_column"
            ),
        ),
        "class that training lacks": (
            lambda: write_csv("a.csv", good),
            {"test": "b.csv"},
            (
                "b.csv has the class "
                "'pink' in the column 'label', but a.csv has only blue, green, red; add training "
                "rows of this class or remove its rows from b.csv"
            ),
        ),
        "missing labels": (
            lambda: write_csv("a.csv", [*good, ("x", ""), ("y", " ")]),
            {},
            (
                "a.csv has 2 rows without "
                "a value in the column 'label' (first in row 31 below the header); fill it in or remove the "
                "rows"
            ),
        ),
        "missing text": (
            lambda: write_jsonl("a.jsonl", [(None, "red"), *good]),
            {},
            ("a.jsonl has 1 row without a value in the column 'text' (row 1); fill it in or remove the row"),
        ),
        "text that is a number": (
            lambda: write_jsonl("a.jsonl", [("x", "red"), (5, "red")]),
            {},
            (
                "row 2 of a.jsonl "
                "has '5' in the column 'text', which is not a text; correct --data.text_column or "
                "the file"
            ),
        ),
        "label that is a list": (
            lambda: write_jsonl("a.jsonl", [("x", ["red"])]),
            {},
            (
                "row 1 of a.jsonl has a list "
                "in the column 'label', but a class must be a text or a number; correct "
                "--data.label_column"
            ),
        ),
        "too few rows": (
            lambda: write_csv("a.csv", good[:4]),
            {},
            (
                "a.csv has 4 rows, which is too few to hold out "
                "10% of them for validation; add rows, or set --data.validation to another share or to a file"
            ),
        ),
        "too many classes": (
            lambda: write_csv("a.csv", [("x", i / 7) for i in range(40)]),
            {},
            (
                "the column 'label' "
                "of a.csv has 40 different values in 40 rows, which is too many for classes; set "
                "--data.label_column to a column of classes"
            ),
        ),
        "repeated header": (
            lambda: write_csv("a.csv", good, header="text,text"),
            {},
            ("a.csv has 2 columns named 'text'; give each a name of its own"),
        ),
        "unknown suffix": (
            lambda: write_csv("a.docx", good),
            {},
            (
                "a.docx ends in '.docx', but a table must end in "
                ".csv, .tsv, .jsonl or .parquet; convert or rename the file"
            ),
        ),
        "comma in a text": (
            lambda: write_csv("a.csv", [*good, ("a, b", "red")]),
            {},
            (
                "line 32 of a.csv has 3 fields, "
                "but the first line has 2; write a text that contains the separator in quotation marks: "
                '"a, b"'
            ),
        ),
        "open quotation mark": (
            lambda: write_csv("a.csv", [*good, ('"a', "red")]),
            {},
            (
                "a quotation mark in or "
                'before line 32 of a.csv is not closed; close it, or write "" for a quotation mark '
                "inside a quoted text"
            ),
        ),
        "not JSON": (
            lambda: write_csv("a.jsonl", good),
            {},
            ("line 1 of a.jsonl is not JSON (Expecting value: line 1 column 1 (char 0)); correct it"),
        ),
        "not an object": (
            lambda: write_csv("a.jsonl", [], header="[1]"),
            {},
            ('line 1 of a.jsonl is not a JSON object; write one object per line, such as {"text": "..."}'),
        ),
        "share": (
            lambda: write_csv("a.csv", good),
            {"validation": 1.5},
            (
                "validation and test must be files, or "
                "shares between 0 and 1 whose sum is less than 1, got 1.5 and None; 0.1 holds out 10 % of the rows"
            ),
        ),
        "missing validation file": (
            lambda: write_csv("a.csv", good),
            {"validation": "v.csv"},
            ("no file or folder 'v.csv'; similar names in that folder: b.csv, a.csv; correct --data.validation"),
        ),
    }


CASES = invalid_cases()


@pytest.mark.parametrize("case", CASES)
def test_a_mistake_is_one_sentence(case) -> None:
    write, settings, message = CASES[case]
    write_csv("b.csv", [("x", "pink")])
    assert message_of(write(), **settings) == message


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["text,label", "café,x", "naïve,y", "plain,x"],
            "line 2 of a.csv is not UTF-8 (byte 4); convert the file, for example with `iconv -f LATIN1 -t UTF-8`",
        ),
        (
            ["text,label", "utf:café,x", "café,x", "naïve,y"],
            (
                "line 3 of a.csv is not UTF-8 (byte 4), but 1 other line is, so the file mixes encodings; convert or "
                "remove the 2 lines that are not"
            ),
        ),
    ],
    ids=["latin1", "mixed"],
)
def test_a_file_that_is_not_utf_8(lines, message) -> None:
    content = b"\n".join(line.encode("utf-8" if line.startswith("utf:") else "latin-1") for line in lines)
    Path("a.csv").write_bytes(content)
    assert message_of("a.csv") == message


def test_utf_16_and_a_byte_order_mark() -> None:
    write_csv("a.csv", ROWS)
    text = Path("a.csv").read_text()
    Path("a.csv").write_text(text, encoding="utf-16")
    assert message_of("a.csv") == "a.csv is UTF-16; convert it to UTF-8, for example with `iconv -f UTF-16 -t UTF-8`"
    Path("a.csv").write_text(text, encoding="utf-8-sig")
    assert dataset("a.csv").num_classes == 3


def test_damaged_and_oversized_files(monkeypatch) -> None:
    Path("a.parquet").write_bytes(b"PAR1 garbage")
    assert re.match(
        r"a\.parquet cannot be read as Parquet \(.*\); write it again, or convert it", message_of("a.parquet")
    )
    Path("a.jsonl").write_text("[" * 100_000 + "\n")
    assert message_of("a.jsonl").startswith("line 1 of a.jsonl is not JSON (")
    # a run-length encoded file of a few kilobytes with many rows
    write_parquet("b.parquet", [("x" * 1000, "red"), ("x" * 1000, "blue")] * 3000)
    assert Path("b.parquet").stat().st_size < 10_000
    monkeypatch.setattr(tables, "MAX_BYTES", 1_000_000)
    assert message_of("b.parquet") == (
        "the column 'text' of b.parquet has more than 1,000,000 bytes, which is the limit; use fewer rows"
    )
    monkeypatch.setattr(tables, "MAX_ROWS", 5000)
    assert message_of("b.parquet") == "b.parquet has 6,000 rows, the limit is 5,000; use fewer rows"
    monkeypatch.setattr(text_encoding, "MAX_BYTES", 100)
    write_csv("a.csv", ROWS)
    assert re.fullmatch(r"a\.csv has \d+ bytes, the limit is 100; use fewer rows", message_of("a.csv"))


def test_a_script_in_a_folder_is_not_run() -> None:
    folder = Path("set")
    folder.mkdir()
    (folder / "set.py").write_text("from pathlib import Path; Path('canary').touch()")
    write_csv("set/train.csv", ROWS)
    assert message_of("set").startswith("the data set 'set' cannot be loaded (Dataset scripts are no longer supported")
    assert not Path("canary").exists()
