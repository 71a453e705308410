"""BPE dropout: other tokens of the same text in every epoch, the same ones for the same seed and epoch."""

from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fna_lightning.tasks import Multi30kData
from fna_lightning.tasks.data.tokenization import Tokenization
from fna_lightning.tasks.translation.bpe_dropout import DropoutEncoder
from fna_lightning.tasks.translation.data import TranslationBatch

TEXTS = [(f"Several people are walking past {n}.", f"Mehrere Menschen gehen vorbei {n}.") for n in range(40)]
BATCH_TOKENS = 200


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("FNA_CACHE", str(tmp_path / "cache"))
    for split in ("train", "val", "test"):
        for side, language in enumerate(("en", "de")):
            text = "".join(f"{pair[side]}\n" for pair in TEXTS)
            (tmp_path / f"{split}.{language}").write_text(text, encoding="utf-8")
    return tmp_path


def dataset(folder: Path, dropout: float = 0.3, **settings: Any) -> Multi30kData:
    tokenization = Tokenization(vocab_size=320, max_length=64)
    data = Multi30kData(
        path=str(folder),
        **{"tokenization": tokenization, "batch_tokens": BATCH_TOKENS, "bpe_dropout": dropout, **settings},
    )
    data.prepare_data()
    return data


def batches(data: Multi30kData, epoch: int) -> list[TranslationBatch]:
    loader = data.train_dataloader()
    loader.batch_sampler.set_epoch(epoch)
    result = list(loader)
    assert len(loader) == len(result)
    return result


def rows(data: Multi30kData, epoch: int) -> dict[int, tuple[list[int], list[int]]]:
    """Return the tokens of source and target of each pair, by its index."""
    return {
        index: (source[:length].tolist(), target[: target_length + 1].tolist())
        for batch in batches(data, epoch)
        for source, length, target, target_length, index in zip(
            batch.source, batch.source_lengths, batch.target, batch.target_lengths, batch.number.tolist(), strict=True
        )
    }


def test_epochs_have_different_tokens_of_the_same_texts(folder) -> None:
    data = dataset(folder)
    first, second = rows(data, 0), rows(data, 1)
    assert sorted(first) == sorted(second) == list(range(len(TEXTS)))
    assert sum(first[index] != second[index] for index in first) > len(TEXTS) / 2
    for epoch in (first, second):
        for index, sides in epoch.items():
            assert tuple(map(data.codec.decode, sides)) == TEXTS[index]


def test_the_same_seed_and_epoch_have_the_same_tokens_also_after_the_cache_is_rebuilt(folder, monkeypatch) -> None:
    expected = rows(dataset(folder), 3)
    assert rows(dataset(folder), 3) == expected
    monkeypatch.setenv("FNA_CACHE", str(folder / "other cache"))
    assert rows(dataset(folder), 3) == expected
    monkeypatch.setenv("PL_GLOBAL_SEED", "1")
    assert rows(dataset(folder), 3) != expected


def test_an_epoch_continues_in_the_middle_with_the_same_tokens(folder) -> None:
    before, after = (dataset(folder).train_dataloader().batch_sampler for _ in range(2))
    before.set_epoch(2)
    whole = list(before)
    after.set_epoch(2)
    assert after.resume(before.progress(3)) == (3, 3)
    assert list(after) == whole
    # With another batch size, the rest of the epoch consists of the other examples, in the same variants.
    other = dataset(folder, batch_tokens=2 * BATCH_TOKENS).train_dataloader().batch_sampler
    other.set_epoch(2)
    _, skip = other.resume(before.progress(3))
    assert sorted(chain(*list(other)[skip:])) == sorted(chain(*whole[3:]))


def test_batches_stay_within_their_limit(folder) -> None:
    data = dataset(folder, dropout=0.7)
    for epoch in range(3):
        for batch in batches(data, epoch):
            assert batch.source.numel() <= BATCH_TOKENS
            assert batch.target[:, 1:].numel() <= BATCH_TOKENS


def test_only_training_batches_are_changed(folder) -> None:
    plain, dropped = dataset(folder, 0.0), dataset(folder)
    for name in ("train", "val", "test"):
        for expected, pair in zip(plain.split(name), dropped.split(name), strict=True):
            assert all(map(np.array_equal, expected, pair))
    assert [batch.source.tolist() for batch in dropped.val_dataloader()] == [
        batch.source.tolist() for batch in plain.val_dataloader()
    ]
    assert rows(plain, 0) != rows(dropped, 0)


def test_without_dropout_the_tokens_are_those_of_the_tokenizer(folder) -> None:
    codec = dataset(folder).codec
    encoder = DropoutEncoder(codec.source_tokenizer, 0.0)
    for text in ["Several people are gehen, 3.", "ünknown <br> wörds", ""]:
        assert encoder.encode(text, 2) == [codec.encode(text)] * 2


def test_words_have_no_merges_to_leave_out(folder) -> None:
    with pytest.raises(ValueError, match=r"bpe_dropout = 0.3 .* kind 'word' .*; set bpe_dropout to 0, or .* 'bpe'"):
        dataset(folder, tokenization=Tokenization(kind="word", vocab_size=100))
    with pytest.raises(ValueError, match=r"bpe_dropout must lie in \[0, 1\), got 1"):
        dataset(folder, 1.0)
